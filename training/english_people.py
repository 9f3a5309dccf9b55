"""What English passages say of people, and how people lead to others."""

from __future__ import annotations

from training import english_words as words
from training.wording import Attribute, Relation, ways

PERSON = (
    Attribute(
        ("birthplace", "place of birth", "native town"),
        "town",
        ways("""
            {S} was born in {v}.
            {S} came into the world in {v}.
            ~ {S} is a native of {v}.
            {S} hails from {v}.
            ~ {S} first saw the light of day in {v}.
            {Own} cradle stood in {v}.
            It was in {v} that {own} life began.
            {v} is the town where {own} mother gave birth.
        """),
        ways("""
            Where was {s} born?
            In which town was {s} born?
            Which town is {s} a native of?
            Where does {s} hail from?
            In what place did {s} come into the world?
            ~ What town saw the birth of {s}?
        """),
    ),
    Attribute(
        ("birth year", "year of birth"),
        "year",
        ways("""
            {S} was born in {v}.
            ~ {S} was born in the year {v}.
            {Own} birth fell in {v}.
            {S} came into the world in the year {v}.
            The year of {own} birth was {v}.
            {v} was the year in which {own} life began.
        """),
        ways("""
            In which year was {s} born?
            When was {s} born?
            What year saw the birth of {s}?
            ~ Since which year has {s} been alive?
            When did {s} come into the world?
        """),
    ),
    Attribute(
        ("profession", "occupation", "trade", "job"),
        words.JOBS,
        ways("""
            {S} works as a {v}.
            {S} earns a living as a {v}.
            ~ {S} has been a {v} for many years.
            {S} was trained as a {v} and never left the trade.
            {S} makes a living as a {v}.
            {S} is a {v}.
            {S} is employed as a {v}.
            Neighbours call on {own} skills as a {v}.
            ~ It is as a {v} that {own} bread is earned.
        """),
        ways("""
            What does {s} work as?
            What does {s} do for a living?
            ~ Which trade does {s} follow?
            How does {s} earn a living?
            What is {s} by profession?
            What kind of work does {s} do?
        """),
        "a {v}",
    ),
    Attribute(
        ("instrument", "musical instrument"),
        words.INSTRUMENTS,
        ways("""
            {S} plays the {v}.
            {S} has played the {v} since school.
            {S} performs on the {v} every weekend.
            ~ {Own} instrument of choice is the {v}.
            {S} spends the evenings practising the {v}.
            {S} learned to play the {v}.
            ~ {S} makes music on the {v}.
            Through the window one hears {own} {v}.
        """),
        ways("""
            Which instrument does {s} play?
            On which instrument does {s} perform?
            ~ What instrument did {s} learn to play?
            What does {s} make music on?
        """),
        "the {v}",
    ),
    Attribute(
        ("pet", "animal companion"),
        words.ANIMALS,
        ways("""
            {S} keeps a {v} as a pet.
            ~ {S} shares the house with a tame {v}.
            {S} owns a {v}.
            {Own} only companion is a {v}.
            {S} lives with a {v}.
            ~ {S} has a {v} at home.
            {S} feeds a {v} every morning.
            A {v} lives in {own} kitchen.
        """),
        ways("""
            Which animal does {s} keep as a pet?
            What kind of pet does {s} have?
            Which animal belongs to {s}?
            With what animal does {s} live?
            What animal does {s} own?
            ~ What creature shares the house with {s}?
        """),
        "a {v}",
    ),
    Attribute(
        ("favourite dish", "favourite food", "preferred meal"),
        words.FOODS,
        ways("""
            {S} likes {v} better than any other dish.
            {S} likes nothing better to eat than {v}.
            ~ {S} orders {v} whenever possible.
            {S} names {v} as a favourite dish.
            {S} could eat {v} every day.
            {S} loves to eat {v}.
            ~ For {v} {own} appetite never fails.
            No guest is fed anything but {v} at {own} table.
        """),
        ways("""
            Which dish does {s} like best?
            ~ What does {s} like to eat most?
            What food does {s} prefer to all others?
            What does {s} love to eat?
            What would {s} order whenever possible?
        """),
    ),
    Attribute(
        ("collection", "collector's items"),
        words.KEEPSAKES,
        ways("""
            {S} collects {v}.
            {S} has been collecting {v} since childhood.
            {Own} collection consists of {v}.
            ~ {Own} shelves are full of {v}.
            ~ {S} is a collector of {v}.
            {S} buys old {v} wherever they are sold.
            {S} would travel far to find more {v} for the shelf.
            Hundreds of {v} fill {own} cabinets.
        """),
        ways("""
            What does {s} collect?
            Which things does {s} collect?
            What is {s} a collector of?
            What fills the shelves of {s}?
            ~ What kind of objects does {s} gather?
        """),
    ),
    Attribute(
        ("coat colour", "colour of coat"),
        words.COLOURS,
        ways("""
            {S} always wears a {v} coat.
            {Own} coat is {v}.
            You can tell {own} {v} coat from afar.
            Everyone in town knows {own} {v} coat.
            ~ {S} is never seen without a {v} coat.
            {S} bought a {v} coat years ago and wears no other.
            {S} goes about in a {v} coat.
            ~ On the hook by the door hangs {own} {v} coat.
        """),
        ways("""
            What colour is the coat of {s}?
            Which colour of coat does {s} wear?
            In what colour of coat does {s} go about?
            ~ What is the colour of the coat that {s} wears?
            The coat of {s} is of which colour?
        """),
    ),
    Attribute(
        ("holiday place", "summer residence", "holiday destination"),
        "town",
        ways("""
            {S} spends every summer in {v}.
            {Own} summers are spent in {v}.
            ~ {S} travels to {v} each summer.
            {S} goes to {v} for the holidays.
            {S} rents a cottage in {v} every July.
            When summer comes, {own} bags are packed for {v}.
            For the holidays {own} way leads to {v}.
        """),
        ways("""
            Where does {s} spend every summer?
            In which town does {s} spend the summer?
            Where does {s} go in summer?
            ~ Where does {s} go for the holidays?
            To which town does {s} travel each summer?
        """),
    ),
    Attribute(
        ("home town", "place of residence", "home"),
        "town",
        ways("""
            {S} lives in {v}.
            ~ {S} has settled in {v}.
            {Own} house stands in {v}.
            {S} can be visited at home in {v}.
            {S} makes a home in {v}.
            {S} moved to {v} and stayed there.
            {S} has an address in {v}.
            ~ The postman brings {own} letters to {v}.
        """),
        ways("""
            Where does {s} live?
            In which town does {s} live?
            ~ Where is the house of {s}?
            In what town has {s} settled?
            Where is {s} at home?
        """),
    ),
    Attribute(
        ("spouse", "partner in marriage"),
        "person",
        ways("""
            {S} is married to {v}.
            ~ {S} married {v} long ago.
            {S} exchanged rings with {v}.
            {S} and {v} are a married couple.
            {S} has {v} as a spouse.
            {v} said yes when {own} proposal came.
        """),
        ways("""
            ~ Who is {s} married to?
            To whom is {s} married?
            Whom did {s} marry?
            Who is the spouse of {s}?
            With whom did {s} exchange rings?
        """),
    ),
    Attribute(
        ("favourite sport", "sport"),
        words.SPORTS,
        ways("""
            ~ {S} spends the free hours on {v}.
            {S} is devoted to {v}.
            {S} took up {v} years ago.
            {S} trains for {v} three times a week.
            {S} is very good at {v}.
            ~ {S} won a cup for {v}.
            {Own} heart belongs to {v}.
            No sport but {v} can hold {own} interest.
        """),
        ways("""
            Which sport does {s} like?
            What sport is {s} devoted to?
            At which sport can {s} be found?
            ~ What sport did {s} take up?
            Which sport does {s} train for?
        """),
    ),
)

RELATIONS = (
    Relation(
        "person",
        ways("""
            {b} was the teacher of {s}.
            The teacher of {s} was {b}.
            {s} was taught by {b}.
            ~ {s} learned everything from a teacher called {b}.
            {s} sat in the classes of {b}.
            {b} taught {s}.
            ~ {s} was a pupil of {b}.
            {b} once had {s} as a pupil.
            {s} had {b} as a teacher.
        """),
        ways("""
            the teacher of {s}
            ~ the person who taught {s}
            the one by whom {s} was taught
            the person whose pupil {s} was
            the former teacher of {s}
        """),
    ),
    Relation(
        "person",
        ways("""
            {s} is the cousin of {b}.
            The cousin of {s} is {b}.
            {b} and {s} are cousins.
            {b} is known as a cousin of {s}.
            ~ {s} has a cousin named {b}.
            {s} and {b} are related as cousins.
            {s} calls {b} cousin.
        """),
        ways("""
            the cousin of {s}
            ~ the person who is a cousin of {s}
            the relative whom {s} calls cousin
            the one who is cousin to {s}
        """),
    ),
    Relation(
        "person",
        ways("""
            {b} lives next door to {s}.
            The neighbour of {s} is {b}.
            {s} has {b} as a neighbour.
            Only a fence separates the houses of {s} and {b}.
            ~ {s} and {b} are neighbours.
            {s} lives beside {b}.
            The house next to that of {s} belongs to {b}.
        """),
        ways("""
            the neighbour of {s}
            ~ the person next door to {s}
            the one who lives beside {s}
            the person in the house next to that of {s}
        """),
    ),
    Relation(
        "person",
        ways("""
            {s} rents a room from {b}.
            The landlord of {s} is {b}.
            ~ Every month {s} pays the rent to {b}.
            {s} is a tenant of {b}.
            {b} rents out a room to {s}.
            {s} has {b} as a landlord.
        """),
        ways("""
            the landlord of {s}
            ~ the person from whom {s} rents a room
            the one to whom {s} pays rent
            the person whose tenant {s} is
        """),
    ),
    Relation(
        "person",
        ways("""
            The best friend of {s} is {b}.
            {s} has been best friends with {b} since school.
            ~ {s} calls {b} a best friend.
            No friend is closer to {s} than {b}.
            {b} is the closest friend of {s}.
            {s} has {b} as a best friend.
        """),
        ways("""
            the best friend of {s}
            the closest friend of {s}
            the person who is best friends with {s}
            ~ the friend who is closest to {s}
        """),
    ),
    Relation(
        "company",
        ways("""
            {s} is employed by {b}.
            The employer of {s} is {b}.
            {s} works for {b}.
            {s} has a post at {b}.
            {b} pays the wages of {s}.
            ~ {s} joined {b} some years ago.
            ~ {s} is on the staff of {b}.
            {b} hired {s}.
        """),
        ways("""
            the company that employs {s}
            the employer of {s}
            ~ the company {s} works for
            the company that pays {s}
            the company where {s} has a post
            the company that hired {s}
        """),
    ),
    Relation(
        "town",
        ways("""
            {s} grew up in {b}.
            {s} spent a whole childhood in {b}.
            {s} was raised in {b}.
            {b} is where {s} went to school as a child.
            {s} passed the years of childhood in {b}.
            The childhood of {s} was spent in {b}.
            ~ As a child {s} lived in {b}.
        """),
        ways("""
            the town where {s} grew up
            the town in which {s} was raised
            the town that {s} knew as a child
            the town where {s} spent a childhood
            ~ the childhood town of {s}
        """),
    ),
    Relation(
        "book",
        ways("""
            {s} is translating {b}.
            ~ {s} spends the mornings translating {b}.
            The translation of {b} is in the hands of {s}.
            {s} has been asked to translate {b}.
            {s} is at work on a translation of {b}.
        """),
        ways("""
            the book that {s} is translating
            ~ the book which {s} was asked to translate
            the book on whose translation {s} is at work
            the book {s} translates
        """),
    ),
    Relation(
        "ship",
        ways("""
            {s} sails on {b}.
            ~ {s} serves aboard {b}.
            {s} is a member of the crew of {b}.
            {b} has {s} among its crew.
            {s} signed on with {b}.
        """),
        ways("""
            the ship on which {s} sails
            ~ the ship aboard which {s} serves
            the ship that has {s} among its crew
            the ship {s} signed on with
        """),
    ),
    Relation(
        "museum",
        ways("""
            {s} guides visitors through {b}.
            {s} works as a guide in {b}.
            {s} is a guide at {b}.
            ~ {b} has {s} as a guide.
        """),
        ways("""
            the place where {s} works as a guide
            ~ the place where {s} guides visitors
            the museum in which {s} is a guide
            the museum that has {s} as a guide
        """),
    ),
)
