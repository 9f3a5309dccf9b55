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
            {Own} birthplace is known to be {v}.
            {S} was a child of {v}, born within its walls.
            {v} is the town in which {s} was born.
            In {v} stands the house where {s} was born.
            It is {v} that calls itself {own} birthplace.
        """),
        ways("""
            Where was {s} born?
            In which town was {s} born?
            Which town is {s} a native of?
            Where does {s} hail from?
            In what place did {s} come into the world?
            ~ What town saw the birth of {s}?
            Tell me where {s} was born.
            What is the native town of {s}?
            Which place is the birthplace of {s}?
            In which place did the life of {s} begin?
            From which town does {s} come by birth?
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
            {S} has been alive since {v}.
            It was the year {v} when {s} was born.
            In {v}, {own} parents celebrated the birth of a child.
            Born in {v}: so it stands in {own} papers.
        """),
        ways("""
            In which year was {s} born?
            When was {s} born?
            What year saw the birth of {s}?
            ~ Since which year has {s} been alive?
            When did {s} come into the world?
            Tell me the year in which {s} was born.
            What is the year of birth of {s}?
            Of which year is the birth of {s}?
            In what year did the life of {s} begin?
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
            By profession {s} is a {v}.
            {Own} trade is that of a {v}.
            Those in need of a {v} send for {s}.
            {S} found work as a {v}.
            The sign on {own} door says {v}.
        """),
        ways("""
            What does {s} work as?
            What does {s} do for a living?
            ~ Which trade does {s} follow?
            How does {s} earn a living?
            What is {s} by profession?
            What kind of work does {s} do?
            What job does {s} have?
            As what is {s} employed?
            Tell me the occupation of {s}.
            What trade did {s} learn?
            In which profession does {s} work?
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
            The {v} is the instrument that {s} plays.
            Give {s} a {v} and there will be music.
            {S} is known for playing the {v}.
            No other instrument but the {v} will do for {s}.
            {S} took lessons on the {v} and still plays it.
        """),
        ways("""
            Which instrument does {s} play?
            On which instrument does {s} perform?
            ~ What instrument did {s} learn to play?
            What does {s} make music on?
            What does {s} play in the evenings, which instrument?
            What is the instrument of {s}?
            Which instrument is played by {s}?
            Tell me the instrument that {s} plays.
            On what does {s} make music?
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
            A {v} is {own} pet.
            The animal that {s} keeps at home is a {v}.
            {S} is the owner of a {v}.
            At home a {v} waits for {s}.
            Of all animals {s} chose a {v} to live with.
        """),
        ways("""
            Which animal does {s} keep as a pet?
            What kind of pet does {s} have?
            Which animal belongs to {s}?
            With what animal does {s} live?
            What animal does {s} own?
            ~ What creature shares the house with {s}?
            Which animal is kept by {s}?
            What is the pet of {s}?
            Tell me what animal {s} has at home.
            Which pet belongs to {s}?
            Of what animal is {s} the owner?
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
            What {s} likes best is {v}.
            A plate of {v} makes {s} happy.
            On birthdays {s} always asks for {v}.
            {Own} favourite among all dishes is {v}.
            Nothing tastes better to {s} than {v}.
        """),
        ways("""
            Which dish does {s} like best?
            ~ What does {s} like to eat most?
            What food does {s} prefer to all others?
            What does {s} love to eat?
            What would {s} order whenever possible?
            What is the favourite dish of {s}?
            Which food makes {s} happy?
            Tell me what {s} likes to eat best.
            What meal does {s} prefer?
            Which dish is the favourite of {s}?
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
            What {s} collects is {v}.
            {S} owns a large collection of {v}.
            Every room of {own} house is full of {v}.
            {S} cannot pass a shop that sells {v}.
            Friends bring {s} {v} for the collection.
        """),
        ways("""
            What does {s} collect?
            Which things does {s} collect?
            What is {s} a collector of?
            What fills the shelves of {s}?
            ~ What kind of objects does {s} gather?
            What is in the collection of {s}?
            Tell me what {s} collects.
            What things are collected by {s}?
            Of what does the collection of {s} consist?
            What does {s} gather on the shelves?
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
            The coat that {s} wears is {v}.
            {S} owns just one coat, a {v} one.
            In the street {s} is known by the {v} coat.
            {v} is the colour of {own} coat.
            {S} is dressed in a {v} coat all year round.
        """),
        ways("""
            What colour is the coat of {s}?
            Which colour of coat does {s} wear?
            In what colour of coat does {s} go about?
            ~ What is the colour of the coat that {s} wears?
            The coat of {s} is of which colour?
            Tell me the colour of the coat that {s} wears.
            Which colour does the coat of {s} have?
            What coat colour is {s} known by?
            Of what colour is the coat of {s}?
            In which colour did {s} buy a coat?
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
            {v} is where {s} goes every summer.
            In summer {s} is always to be found in {v}.
            {Own} summer house is in {v}.
            The warm months {s} passes in {v}.
            Each June {s} leaves for a holiday in {v}.
        """),
        ways("""
            Where does {s} spend every summer?
            In which town does {s} spend the summer?
            Where does {s} go in summer?
            ~ Where does {s} go for the holidays?
            To which town does {s} travel each summer?
            Tell me where {s} spends the holidays.
            Which town does {s} visit each summer?
            In what place does {s} pass the summer?
            Where can {s} be found in summer?
            What is the holiday place of {s}?
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
            {v} has been {own} home for years.
            {Own} home is in {v}.
            At present {s} lives in the town of {v}.
            {S} has a flat in {v} and lives there.
            Letters for {s} must be sent to {v}.
        """),
        ways("""
            Where does {s} live?
            In which town does {s} live?
            ~ Where is the house of {s}?
            In what town has {s} settled?
            Where is {s} at home?
            Tell me where {s} lives.
            Which town is the home of {s}?
            In what place does {s} live?
            What is the place of residence of {s}?
            Where has {s} made a home?
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
            {Own} spouse is {v}.
            {v} is married to {s}.
            The wedding of {s} and {v} was a quiet one.
            {S} shares a married life with {v}.
            {S} became the spouse of {v}.
        """),
        ways("""
            ~ Who is {s} married to?
            To whom is {s} married?
            Whom did {s} marry?
            Who is the spouse of {s}?
            With whom did {s} exchange rings?
            Tell me who {s} is married to.
            Who married {s}?
            Whose spouse is {s}?
            To which person is {s} married?
            With whom does {s} share a married life?
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
            {Own} sport is {v}.
            In the free hours one finds {s} busy with {v}.
            {v} is what {s} does for sport.
            {S} never misses a chance for {v}.
            Of all sports {s} prefers {v}.
        """),
        ways("""
            Which sport does {s} like?
            What sport is {s} devoted to?
            At which sport can {s} be found?
            ~ What sport did {s} take up?
            Which sport does {s} train for?
            Tell me the favourite sport of {s}.
            What does {s} do for sport?
            Which sport is preferred by {s}?
            What is the sport of {s}?
            In which sport did {s} win a cup?
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
            {s} went to {b} for lessons.
            As a teacher, {s} had {b}.
            It was {b} who taught {s}.
            The lessons of {s} were given by {b}.
            {b} gave lessons to {s}.
            {s} studied under {b}.
            Among the pupils of {b} was {s}.
            What {s} knows was learned from {b}.
        """),
        ways("""
            the teacher of {s}
            ~ the person who taught {s}
            the one by whom {s} was taught
            the person whose pupil {s} was
            the former teacher of {s}
            the one who taught {s}
            whoever gave lessons to {s}
            the teacher that {s} had
            the person under whom {s} studied
            the person in whose classes {s} sat
            the one from whom {s} learned everything
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
            {b} is a cousin of {s}.
            As cousins, {s} and {b} grew up together.
            {s} is related to {b}, a cousin.
            {b}, cousin of {s}, is often in the house.
            {s} often visits {b}, who is a cousin.
        """),
        ways("""
            the cousin of {s}
            ~ the person who is a cousin of {s}
            the relative whom {s} calls cousin
            the one who is cousin to {s}
            that cousin of {s}
            the person to whom {s} is a cousin
            the one related to {s} as a cousin
            the cousin whom {s} often visits
            whoever is the cousin of {s}
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
            Next door to {s} lives {b}.
            As a neighbour, {s} has {b}.
            {b} is the neighbour of {s}.
            The garden of {s} borders on that of {b}.
            Through the wall {s} can hear {b}, who lives next door.
            Whenever sugar runs out, {s} goes next door to {b}.
        """),
        ways("""
            the neighbour of {s}
            ~ the person next door to {s}
            the one who lives beside {s}
            the person in the house next to that of {s}
            the person living next to {s}
            the one next door to {s}
            the neighbour that {s} has
            whoever lives next door to {s}
            the one whose garden borders on that of {s}
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
            {b} is the landlord of {s}.
            The rooms of {s} belong to {b}.
            {s} lives in a room let by {b}.
            Rent from {s} goes to {b}.
            As a landlord, {s} has {b}.
            {b} owns the rooms in which {s} is a tenant.
        """),
        ways("""
            the landlord of {s}
            ~ the person from whom {s} rents a room
            the one to whom {s} pays rent
            the person whose tenant {s} is
            the person who rents out a room to {s}
            the one who owns the rooms of {s}
            whoever collects the rent of {s}
            the landlord that {s} has
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
            {b} and {s} are best friends.
            {b} has always been the best friend of {s}.
            As a best friend, {s} has {b}.
            Nobody is a better friend to {s} than {b}.
            {s} calls {b} the best of friends.
            {s} tells everything to {b}, the best friend.
        """),
        ways("""
            the best friend of {s}
            the closest friend of {s}
            the person who is best friends with {s}
            ~ the friend who is closest to {s}
            the one who is the best friend of {s}
            the friend whom {s} likes best
            the person closest to {s} among friends
            whoever is best friends with {s}
            the best friend that {s} has
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
            {b} is the employer of {s}.
            {s} found work at {b}.
            Every morning {s} goes to work at {b}.
            Among the staff of {b} is {s}.
            {s} earns wages at {b}.
        """),
        ways("""
            the company that employs {s}
            the employer of {s}
            ~ the company {s} works for
            the company that pays {s}
            the company where {s} has a post
            the company that hired {s}
            the company on whose payroll {s} is
            the firm that has {s} on its staff
            whichever company employs {s}
            the company at which {s} found work
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
            {b} is the town where {s} grew up.
            The streets of {b} saw {s} grow up.
            {s} comes from a family in {b} and grew up there.
            Until leaving school {s} lived in {b}.
            It was in {b} that {s} grew up.
        """),
        ways("""
            the town where {s} grew up
            the town in which {s} was raised
            the town that {s} knew as a child
            the town where {s} spent a childhood
            ~ the childhood town of {s}
            the place where {s} grew up
            the town where {s} lived as a child
            the town in which {s} spent a childhood
            whichever town {s} grew up in
            the town of the childhood of {s}
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
            {s} translates {b}.
            The translator of {b} is {s}.
            {b} is being translated by {s}.
            At the moment {s} is busy translating {b}.
            A translation of {b} lies on the desk of {s}.
            {s} took on the translation of {b}.
        """),
        ways("""
            the book that {s} is translating
            ~ the book which {s} was asked to translate
            the book on whose translation {s} is at work
            the book {s} translates
            the book being translated by {s}
            the work that {s} translates
            the book whose translator is {s}
            whichever book {s} is translating
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
            {s} serves on {b}.
            On board of {b} works {s}.
            The crew of {b} includes {s}.
            {s} goes to sea on {b}.
            Among the sailors of {b} is {s}.
            {s} was taken on by {b} as a sailor.
        """),
        ways("""
            the ship on which {s} sails
            ~ the ship aboard which {s} serves
            the ship that has {s} among its crew
            the ship {s} signed on with
            the ship that {s} serves on
            the ship with {s} in its crew
            the ship whose crew includes {s}
            the vessel on which {s} goes to sea
            whichever ship {s} sails on
        """),
    ),
    Relation(
        "museum",
        ways("""
            {s} guides visitors through {b}.
            {s} works as a guide in {b}.
            {s} is a guide at {b}.
            ~ {b} has {s} as a guide.
            Visitors to {b} are guided by {s}.
            Among the guides of {b} is {s}.
            {b} employs {s} as a guide.
            {s} shows guests around {b}.
            Tours of {b} are led by {s}.
            In {b} one is shown around by {s}.
        """),
        ways("""
            the place where {s} works as a guide
            ~ the place where {s} guides visitors
            the museum in which {s} is a guide
            the museum that has {s} as a guide
            the museum where {s} guides visitors
            the museum that {s} shows guests around
            the museum whose tours {s} leads
            whichever museum {s} guides visitors through
            the place in which {s} leads tours
        """),
    ),
)
