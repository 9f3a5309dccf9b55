"""What English passages say of companies, towns, ships, books and museums."""

from __future__ import annotations

from training import english_words as words
from training.wording import Attribute, ways

COMPANY = (
    Attribute(
        ("seat", "head office", "headquarters"),
        "town",
        ways("""
            {S} has its seat in {v}.
            The head office of {s} is in {v}.
            {S} is run from {v}.
            ~ {S} is based in {v}.
            ~ Letters to {s} have to be addressed to {v}.
            {S} has its headquarters in {v}.
            {S} keeps its main office in {v}.
            The managers of {s} sit in {v}.
        """),
        ways("""
            In which town does {s} have its seat?
            Where is the head office of {s}?
            Where is {s} based?
            From which town is {s} run?
            Where does {s} have its headquarters?
            ~ In what town do the managers of {s} sit?
        """),
    ),
    Attribute(
        ("main product", "product"),
        words.GOODS,
        ways("""
            {S} makes {v}.
            {S} is known for its {v}.
            {S} lives on the sale of {v}.
            {S} supplies the whole region with {v}.
            Whoever needs {v} turns to {s}.
            {S} produces {v}.
            ~ {S} is a maker of {v}.
            ~ The warehouse of {s} is full of {v}.
        """),
        ways("""
            What does {s} make?
            What does {s} produce?
            What can be bought from {s}?
            ~ What is {s} known for?
            What goods come from {s}?
            What does {s} sell?
        """),
    ),
    Attribute(
        ("founding year", "year of foundation"),
        "year",
        ways("""
            {S} was founded in {v}.
            {S} has existed since {v}.
            The year {v} saw the founding of {s}.
            ~ {S} opened its doors in {v}.
            {S} goes back to the year {v}.
            {S} was set up in {v}.
            {S} has been in business since {v}.
        """),
        ways("""
            In which year was {s} founded?
            When was {s} founded?
            Since when has {s} existed?
            ~ In what year was {s} set up?
            Since which year has {s} been in business?
        """),
    ),
    Attribute(
        ("director", "head", "manager"),
        "person",
        ways("""
            {S} is directed by {v}.
            {S} is in the hands of {v}.
            ~ {v} heads {s}.
            {v} has directed {s} for years.
            At the top of {s} stands {v}.
            {v} is in charge of {s}.
            {S} is led by {v}.
        """),
        ways("""
            Who directs {s}?
            ~ Who heads {s}?
            Who is in charge of {s}?
            By whom is {s} led?
            Who runs {s}?
        """),
    ),
    Attribute(
        ("emblem", "badge"),
        words.ANIMALS,
        ways("""
            {S} has a {v} as its emblem.
            A {v} is the emblem of {s}.
            ~ {S} stamps a {v} on all its crates.
            Above the gate of {s} hangs a painted {v}.
            The flag of {s} shows a {v}.
            {S} chose a {v} for its emblem.
            The sign of {s} is a {v}.
        """),
        ways("""
            ~ What is used as an emblem by {s}?
            What does {s} have as its emblem?
            Which animal does {s} stamp on its crates?
            Which animal does the flag of {s} show?
            What animal stands for {s}?
        """),
        "a {v}",
    ),
    Attribute(
        ("number of workers", "workforce", "number of employees"),
        "number",
        ways("""
            {S} employs {v} people.
            {S} has {v} workers.
            There are {v} people on the payroll of {s}.
            ~ {S} gives work to {v} people.
            {v} people work for {s}.
        """),
        ways("""
            How many people does {s} employ?
            How many workers does {s} have?
            How large is the workforce of {s}?
            How many people work for {s}?
            ~ How many are on the payroll of {s}?
        """),
    ),
)

TOWN = (
    Attribute(
        ("river", "local river"),
        "river",
        ways("""
            {S} lies on the river {v}.
            The river {v} flows through {s}.
            ~ {S} stands on the banks of the {v}.
            Boats reach {s} by way of the {v}.
            {S} was built beside the river {v}.
            The water of {s} comes from the river {v}.
            The {v} runs past {s}.
        """),
        ways("""
            On which river does {s} lie?
            Which river flows through {s}?
            What is the river at {s} called?
            ~ Which river runs past {s}?
            Beside which river was {s} built?
        """),
        "the {v}",
    ),
    Attribute(
        ("charter year", "year of the charter"),
        "year",
        ways("""
            {S} received its charter in {v}.
            {S} has had a charter since {v}.
            The charter of {s} dates from {v}.
            ~ {S} became a town by charter in {v}.
            It took {s} until {v} to be granted a charter.
            {S} was granted a charter in {v}.
            In {v} the charter of {s} was signed.
        """),
        ways("""
            In which year did {s} receive its charter?
            From which year is the charter of {s}?
            When was {s} granted its charter?
            ~ Since when has {s} had a charter?
            When was the charter of {s} signed?
        """),
    ),
    Attribute(
        ("mayor", "head of the council"),
        "person",
        ways("""
            {S} has {v} as its mayor.
            {v} is mayor of {s}.
            {S} elected {v} as mayor.
            The voters of {s} put {v} in the town hall.
            {S} is governed by {v}.
            ~ {v} governs {s}.
            In the town hall of {s} sits {v}.
        """),
        ways("""
            Who is the mayor of {s}?
            Who is mayor in {s}?
            Who governs {s}?
            ~ Who was elected mayor of {s}?
            Who sits in the town hall of {s}?
        """),
    ),
    Attribute(
        ("market speciality", "market goods", "speciality"),
        words.GOODS,
        ways("""
            The market of {s} is known for its {v}.
            {S} is famous for the {v} sold at its market.
            People come to the market of {s} for the {v}.
            ~ {S} sells the best {v} at its market.
            No market has more {v} than that of {s}.
            On market days {s} smells of {v}.
            The stalls in {s} are piled high with {v}.
        """),
        ways("""
            What is the market of {s} known for?
            What is sold at the famous market of {s}?
            ~ What do people buy at the market of {s}?
            What do the stalls in {s} sell?
            For which goods do people come to the market of {s}?
        """),
    ),
    Attribute(
        ("bridge material", "material of the bridge"),
        words.MATERIALS,
        ways("""
            The old bridge of {s} is made of {v}.
            In {s} the bridge is made entirely of {v}.
            {Own} bridge is built of {v}.
            {S} has a bridge of {v}.
            The masters of {s} chose {v} for the bridge.
            One enters {s} over a bridge of {v}.
            ~ The bridge in {s} consists of {v}.
        """),
        ways("""
            What is the bridge of {s} made of?
            Of which material is the bridge of {s} built?
            What was used to build the bridge of {s}?
            ~ What does the bridge in {s} consist of?
            Which material was chosen for the bridge of {s}?
        """),
    ),
    Attribute(
        ("festival month", "month of the festival"),
        words.MONTHS,
        ways("""
            {S} holds its festival in {v}.
            The festival of {s} takes place in {v}.
            Every {v} the festival of {s} begins.
            {S} celebrates for a week each {v}.
            In {v} the streets of {s} are full of dancers for the festival.
            ~ {S} has its festival each {v}.
        """),
        ways("""
            ~ In which month does {s} hold its festival?
            When is the festival of {s}?
            Which month is the festival of {s} in?
            In what month does {s} celebrate?
            When does the festival of {s} take place?
        """),
    ),
    Attribute(
        ("population", "number of inhabitants"),
        "number",
        ways("""
            {S} has {v} inhabitants.
            {v} people live in {s}.
            A count found {v} people in {s}.
            {S} is home to {v} people.
            ~ The people of {s} number {v}.
        """),
        ways("""
            How many inhabitants does {s} have?
            How many people live in {s}?
            How many people were counted in {s}?
            To how many people is {s} home?
            ~ How many people are there in {s}?
        """),
    ),
)

SHIP = (
    Attribute(
        ("captain", "commander"),
        "person",
        ways("""
            {S} sails under {v}.
            {v} is captain of {s}.
            {v} commands {s}.
            On the bridge of {s} stands {v}.
            {S} has {v} as its captain.
            ~ {S} is steered by {v}.
            The crew of {s} obeys {v}.
        """),
        ways("""
            Who commands {s}?
            ~ Under whom does {s} sail?
            Who stands on the bridge of {s}?
            Who is captain of {s}?
            Whom does the crew of {s} obey?
        """),
    ),
    Attribute(
        ("cargo", "freight"),
        words.GOODS,
        ways("""
            ~ {S} carries {v}.
            {S} is loaded with {v}.
            The hold of {s} is full of {v}.
            There is nothing but {v} aboard {s}.
            {S} brings {v} from overseas.
            {S} transports {v}.
        """),
        ways("""
            What does {s} carry?
            What is {s} loaded with?
            What is aboard {s}?
            ~ What does {s} bring from overseas?
            What does {s} transport?
        """),
    ),
    Attribute(
        ("home port", "port of registry"),
        "town",
        ways("""
            {S} has its home port in {v}.
            {S} belongs to the port of {v}.
            ~ When the season ends, {s} returns to {v}.
            {S} is registered in {v}.
            {S} lies at anchor in {v}, its home port.
        """),
        ways("""
            Where does {s} have its home port?
            To which port does {s} belong?
            ~ Where does {s} return to?
            Where is {s} registered?
            In which port is {s} at home?
        """),
    ),
    Attribute(
        ("launch year", "year of the launch"),
        "year",
        ways("""
            ~ {S} was launched in {v}.
            {S} has been at sea since {v}.
            {S} first touched water in {v}.
            {S} left the shipyard in {v}.
            In {v} the shipyard delivered {s}.
        """),
        ways("""
            When was {s} launched?
            In which year was {s} launched?
            Since when has {s} been at sea?
            When did {s} leave the shipyard?
            ~ In what year did {s} first touch water?
        """),
    ),
    Attribute(
        ("hull colour", "colour of the hull"),
        words.COLOURS,
        ways("""
            {S} has a {v} hull.
            ~ The hull of {s} is painted {v}.
            From the shore {s} shows its {v} hull.
            {S} was painted {v} from bow to stern.
            The hull of {s} is {v}.
        """),
        ways("""
            What colour is the hull of {s}?
            Which colour is {s} painted?
            ~ In what colour is the hull of {s} kept?
            What colour does the hull of {s} have?
            What colour was {s} painted from bow to stern?
        """),
    ),
)

BOOK = (
    Attribute(
        ("author", "writer"),
        "person",
        ways("""
            {S} was written by {v}.
            {v} wrote {s}.
            ~ {v} is the author of {s}.
            {S} comes from the pen of {v}.
            {S} is a work of {v}.
            It took {v} years to write {s}.
        """),
        ways("""
            Who wrote {s}?
            By whom was {s} written?
            ~ Whose work is {s}?
            Who is the author of {s}?
            From whose pen does {s} come?
        """),
    ),
    Attribute(
        ("publication year", "year of publication"),
        "year",
        ways("""
            {S} was published in {v}.
            ~ {S} came out in {v}.
            {S} first appeared in {v}.
            Readers have had {s} since {v}.
            {S} was first printed in {v}.
            {S} has been in the shops since {v}.
        """),
        ways("""
            When was {s} published?
            ~ In which year did {s} come out?
            Since when could readers buy {s}?
            When did {s} first appear?
            In what year was {s} first printed?
        """),
    ),
    Attribute(
        ("publisher", "publishing company"),
        "company",
        ways("""
            ~ {S} was published by {v}.
            {S} was brought out by {v}.
            It was {v} that put {s} on the market.
            {v} published {s}.
            {v} is the publisher of {s}.
        """),
        ways("""
            Who published {s}?
            Which company brought out {s}?
            Which company put {s} on the market?
            ~ By which company was {s} published?
            Which company is the publisher of {s}?
        """),
    ),
    Attribute(
        ("number of pages", "page count", "length in pages"),
        "number",
        ways("""
            ~ {S} has {v} pages.
            {S} runs to {v} pages.
            It takes {v} pages for {s} to reach its end.
            {S} is {v} pages long.
            {S} fills {v} pages.
        """),
        ways("""
            ~ How many pages does {s} have?
            How long is {s} in pages?
            How many pages must a reader of {s} turn?
            To how many pages does {s} run?
            How many pages does {s} fill?
        """),
    ),
    Attribute(
        ("cover colour", "colour of the cover"),
        words.COLOURS,
        ways("""
            {S} has a {v} cover.
            The cover of {s} is {v}.
            {S} is bound in {v} cloth.
            {S} is sold with a {v} cover.
            ~ On the shelf {s} stands out by its {v} cover.
        """),
        ways("""
            What colour is the cover of {s}?
            Which colour does {s} have on its cover?
            In what colour is {s} bound?
            What colour does the cover of {s} have?
            ~ With a cover of which colour is {s} sold?
        """),
    ),
)

MUSEUM = (
    Attribute(
        ("curator", "keeper"),
        "person",
        ways("""
            {S} is looked after by {v}.
            {v} is curator of {s}.
            ~ The keys of {s} are held by {v}.
            {S} has {v} as its curator.
            {v} takes care of {s}.
        """),
        ways("""
            ~ Who is curator of {s}?
            Who looks after {s}?
            Who holds the keys of {s}?
            Who takes care of {s}?
            By whom is {s} looked after?
        """),
    ),
    Attribute(
        ("closing day", "day of rest"),
        words.DAYS,
        ways("""
            {S} is closed on {v}.
            {S} opens every day but {v}.
            On {v} the doors of {s} stay shut.
            ~ {S} does not open on {v}.
            Nobody can visit {s} on {v}.
        """),
        ways("""
            ~ On which day is {s} closed?
            When is {s} closed?
            Which day do the doors of {s} stay shut?
            On what day does {s} not open?
            Which day of the week is {s} closed?
        """),
    ),
    Attribute(
        ("location", "site"),
        "town",
        ways("""
            {S} stands in {v}.
            ~ {S} is found in {v}.
            To see {s} one has to go to {v}.
            {S} is located in {v}.
            {S} was built in {v}.
        """),
        ways("""
            Where does {s} stand?
            ~ In which town is {s}?
            Where does one go to see {s}?
            Where is {s} located?
            In what town can {s} be found?
        """),
    ),
    Attribute(
        ("main exhibit", "most famous exhibit"),
        words.EXHIBITS,
        ways("""
            ~ {S} is proud of its {v}.
            {S} shows a {v} to its visitors.
            Crowds come to {s} because of the {v}.
            The pride of {s} is a {v}.
            In the great room of {s} stands a {v}.
        """),
        ways("""
            What is {s} proud of?
            What does {s} show to its visitors?
            What draws crowds to {s}?
            ~ What is the pride of {s}?
            What stands in the great room of {s}?
        """),
        "a {v}",
    ),
)
