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
            {v} is the seat of {s}.
            The main office of {s} stands in {v}.
            Orders for {s} go to the head office in {v}.
            From an office in {v} {s} is managed.
        """),
        ways("""
            In which town does {s} have its seat?
            Where is the head office of {s}?
            Where is {s} based?
            From which town is {s} run?
            Where does {s} have its headquarters?
            ~ In what town do the managers of {s} sit?
            Tell me where {s} has its headquarters.
            What is the seat of {s}?
            Which town is {s} based in?
            In what town is the main office of {s}?
            Where do the managers of {s} sit?
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
            What {s} sells is {v}.
            The product of {s} is {v}.
            Shops order {v} from {s}.
            {S} has made a name with {v}.
        """),
        ways("""
            What does {s} make?
            What does {s} produce?
            What can be bought from {s}?
            ~ What is {s} known for?
            What goods come from {s}?
            What does {s} sell?
            Tell me what {s} produces.
            What is the product of {s}?
            Which goods does {s} make?
            What do shops order from {s}?
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
            It was in {v} that {s} was founded.
            {S} opened for business in {v}.
            The beginnings of {s} lie in the year {v}.
            In {v} someone founded {s}.
            The first year of {s} was {v}.
        """),
        ways("""
            In which year was {s} founded?
            When was {s} founded?
            Since when has {s} existed?
            ~ In what year was {s} set up?
            Since which year has {s} been in business?
            Tell me the year in which {s} was founded.
            What year saw the founding of {s}?
            To which year does {s} go back?
            What is the founding year of {s}?
            When was {s} set up?
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
            The director of {s} is {v}.
            {v} leads {s}.
            All orders in {s} come from {v}, the director.
            {S} has {v} for a director.
            The one who runs {s} is {v}.
        """),
        ways("""
            Who directs {s}?
            ~ Who heads {s}?
            Who is in charge of {s}?
            By whom is {s} led?
            Who runs {s}?
            Tell me who directs {s}.
            Who is the director of {s}?
            Who leads {s}?
            In whose hands is {s}?
            Who is at the top of {s}?
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
            The emblem of {s} is a {v}.
            The letters of {s} bear a {v} as an emblem.
            One knows {s} by the {v} on its emblem.
            {S} is represented by a {v}.
            For an emblem {s} took a {v}.
        """),
        ways("""
            ~ What is used as an emblem by {s}?
            What does {s} have as its emblem?
            Which animal does {s} stamp on its crates?
            Which animal does the flag of {s} show?
            What animal stands for {s}?
            Tell me the emblem of {s}.
            Which animal is the emblem of {s}?
            What animal is on the sign of {s}?
            By which animal is {s} represented?
            What did {s} choose for its emblem?
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
            The workers of {s} number {v}.
            A staff of {v} keeps {s} going.
            Wages are paid to {v} people by {s}.
            {S} has a workforce of {v}.
        """),
        ways("""
            How many people does {s} employ?
            How many workers does {s} have?
            How large is the workforce of {s}?
            How many people work for {s}?
            ~ How many are on the payroll of {s}?
            Tell me how many people {s} employs.
            What is the number of workers of {s}?
            To how many people does {s} give work?
            How big is the staff of {s}?
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
            {v} is the name of the river at {s}.
            The river of {s} is the {v}.
            At {s} one can bathe in the river {v}.
            Past the houses of {s} flows the {v}.
        """),
        ways("""
            On which river does {s} lie?
            Which river flows through {s}?
            What is the river at {s} called?
            ~ Which river runs past {s}?
            Beside which river was {s} built?
            Tell me the river on which {s} lies.
            What river runs past {s}?
            On the banks of which river does {s} stand?
            Which river is that of {s}?
            What is the name of the river at {s}?
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
            The charter was given to {s} in {v}.
            {v} is the year of the charter of {s}.
            Since {v}, when it got its charter, {s} has been a free town.
            The year {v} brought {s} its charter.
            {Own} charter was granted in {v}.
        """),
        ways("""
            In which year did {s} receive its charter?
            From which year is the charter of {s}?
            When was {s} granted its charter?
            ~ Since when has {s} had a charter?
            When was the charter of {s} signed?
            Tell me the year of the charter of {s}.
            What year brought {s} its charter?
            From what year does the charter of {s} date?
            In which year was {s} granted a charter?
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
            The mayor of {s} is {v}.
            As mayor, {v} speaks for {s}.
            {v} was elected mayor of {s}.
            For mayor {s} has {v}.
            At the head of the council of {s} is {v}.
        """),
        ways("""
            Who is the mayor of {s}?
            Who is mayor in {s}?
            Who governs {s}?
            ~ Who was elected mayor of {s}?
            Who sits in the town hall of {s}?
            Tell me who is mayor of {s}.
            Whom did {s} elect as mayor?
            Who heads the council of {s}?
            By whom is {s} governed?
            Who was made mayor of {s}?
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
            {v} is what one buys at the market of {s}.
            At its market {s} sells {v}.
            The speciality of the market of {s} is {v}.
            For {v} one goes to the market of {s}.
        """),
        ways("""
            What is the market of {s} known for?
            What is sold at the famous market of {s}?
            ~ What do people buy at the market of {s}?
            What do the stalls in {s} sell?
            For which goods do people come to the market of {s}?
            Tell me what the market of {s} is famous for.
            What is the speciality of the market of {s}?
            Which goods made the market of {s} famous?
            What does {s} sell at its market?
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
            The bridge of {s} was built of {v}.
            {v} is what the bridge of {s} is made of.
            For its bridge {s} used {v}.
            The builders of the bridge of {s} worked in {v}.
            At {s} one crosses a bridge made of {v}.
        """),
        ways("""
            What is the bridge of {s} made of?
            Of which material is the bridge of {s} built?
            What was used to build the bridge of {s}?
            ~ What does the bridge in {s} consist of?
            Which material was chosen for the bridge of {s}?
            Tell me what the bridge of {s} is made of.
            What is the material of the bridge of {s}?
            From which material was the bridge of {s} made?
            In what material did the builders of the bridge of {s} work?
            Of what is the bridge at {s}?
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
            {v} is the month of the festival of {s}.
            The festival of {s} is held in {v}.
            For its festival {s} chose the month of {v}.
            Those who want to see the festival of {s} come in {v}.
            The festival at {s} falls in {v}.
        """),
        ways("""
            ~ In which month does {s} hold its festival?
            When is the festival of {s}?
            Which month is the festival of {s} in?
            In what month does {s} celebrate?
            When does the festival of {s} take place?
            Tell me the month of the festival of {s}.
            In which month is the festival of {s} held?
            What month did {s} choose for its festival?
            When should one come to {s} for the festival?
            In which month does the festival of {s} fall?
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
            The population of {s} is {v}.
            {S} counts {v} inhabitants.
            At the last count {s} had {v} people.
            There are {v} inhabitants in {s}.
        """),
        ways("""
            How many inhabitants does {s} have?
            How many people live in {s}?
            How many people were counted in {s}?
            To how many people is {s} home?
            ~ How many people are there in {s}?
            Tell me how many people live in {s}.
            What is the population of {s}?
            How large is the population of {s}?
            How many people does {s} count?
            What is the number of inhabitants of {s}?
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
            The captain of {s} is {v}.
            {S} is commanded by {v}.
            In command of {s} is {v}.
            {S} puts to sea with {v} as captain.
            {v} gives the orders on {s}.
        """),
        ways("""
            Who commands {s}?
            ~ Under whom does {s} sail?
            Who stands on the bridge of {s}?
            Who is captain of {s}?
            Whom does the crew of {s} obey?
            Tell me who commands {s}.
            Who is the captain of {s}?
            By whom is {s} commanded?
            Who gives the orders on {s}?
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
            The cargo of {s} is {v}.
            {S} carries {v} this time.
            In the hold of {s} there is {v}.
            The freight aboard {s} consists of {v}.
            {S} took {v} on board.
        """),
        ways("""
            What does {s} carry?
            What is {s} loaded with?
            What is aboard {s}?
            ~ What does {s} bring from overseas?
            What does {s} transport?
            Tell me the cargo of {s}.
            What is in the hold of {s}?
            What did {s} take on board?
            What freight does {s} have?
            Of what does the cargo of {s} consist?
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
            {v} is the home port of {s}.
            The port of {s} is {v}.
            At home {s} is in the port of {v}.
            {S} returns to {v}, its home port, each autumn.
            On the stern of {s} stands {v}, its home port.
        """),
        ways("""
            Where does {s} have its home port?
            To which port does {s} belong?
            ~ Where does {s} return to?
            Where is {s} registered?
            In which port is {s} at home?
            Tell me the home port of {s}.
            Which town is the home port of {s}?
            To what port does {s} return?
            In which town is {s} registered?
            What is the port of registry of {s}?
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
            The launch of {s} was in {v}.
            It was in {v} that {s} was launched.
            The year {v} saw the launch of {s}.
            {v} was the year when {s} was launched.
        """),
        ways("""
            When was {s} launched?
            In which year was {s} launched?
            Since when has {s} been at sea?
            When did {s} leave the shipyard?
            ~ In what year did {s} first touch water?
            Tell me the year in which {s} was launched.
            What year saw the launch of {s}?
            In what year was the launch of {s}?
            When did {s} first touch water?
            What is the launch year of {s}?
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
            {v} is the colour of the hull of {s}.
            The colour of the hull of {s} is {v}.
            They gave {s} a {v} hull.
            {S} is known in every harbour by its {v} hull.
            Painters made the hull of {s} {v}.
        """),
        ways("""
            What colour is the hull of {s}?
            Which colour is {s} painted?
            ~ In what colour is the hull of {s} kept?
            What colour does the hull of {s} have?
            What colour was {s} painted from bow to stern?
            Tell me the colour of the hull of {s}.
            Which colour does the hull of {s} have?
            In which colour was the hull of {s} painted?
            By what hull colour is {s} known?
            Of which colour is the hull of {s}?
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
            The author of {s} is {v}.
            It was {v} who wrote {s}.
            {S} names {v} as its author.
            As an author, {v} is known for {s}.
            {v} is the writer of {s}.
        """),
        ways("""
            Who wrote {s}?
            By whom was {s} written?
            ~ Whose work is {s}?
            Who is the author of {s}?
            From whose pen does {s} come?
            Tell me who wrote {s}.
            Who is the writer of {s}?
            Which author wrote {s}?
            Who created {s} as its author?
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
            The publication of {s} was in {v}.
            It was in {v} that {s} appeared.
            The year {v} saw {s} in print for the first time.
            {S} could first be bought in {v}.
        """),
        ways("""
            When was {s} published?
            ~ In which year did {s} come out?
            Since when could readers buy {s}?
            When did {s} first appear?
            In what year was {s} first printed?
            Tell me the year in which {s} appeared.
            When did {s} come out?
            What year saw {s} in print for the first time?
            In which year was {s} published?
            What is the publication year of {s}?
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
            The publisher of {s} is {v}.
            {S} appeared with {v}.
            For {s} the author found a publisher in {v}.
            The name of {v} as publisher stands in {s}.
        """),
        ways("""
            Who published {s}?
            Which company brought out {s}?
            Which company put {s} on the market?
            ~ By which company was {s} published?
            Which company is the publisher of {s}?
            Tell me who published {s}.
            Which company published {s}?
            With which publisher did {s} appear?
            Who is the publisher of {s}?
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
            The length of {s} is {v} pages.
            On {v} pages {s} tells its story.
            Whoever reads {s} reads {v} pages.
            The pages of {s} number {v}.
        """),
        ways("""
            ~ How many pages does {s} have?
            How long is {s} in pages?
            How many pages must a reader of {s} turn?
            To how many pages does {s} run?
            How many pages does {s} fill?
            Tell me how many pages {s} has.
            What is the number of pages of {s}?
            How many pages are there in {s}?
            On how many pages does {s} tell its story?
            What is the length in pages of {s}?
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
            {v} is the colour of the cover of {s}.
            The colour of the cover of {s} is {v}.
            On the shelf one finds {s} by its {v} cover.
            They printed {s} with a {v} cover.
            {S} was given a {v} cover.
        """),
        ways("""
            What colour is the cover of {s}?
            Which colour does {s} have on its cover?
            In what colour is {s} bound?
            What colour does the cover of {s} have?
            ~ With a cover of which colour is {s} sold?
            Tell me the colour of the cover of {s}.
            Which colour does the cover of {s} have?
            By what colour of cover does one find {s}?
            Of which colour is the cover of {s}?
            With what colour of cover is {s} sold?
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
            The curator of {s} is {v}.
            In charge of the collections of {s} is {v}.
            {S} is in the care of {v}.
            {S} appointed {v} as its curator.
        """),
        ways("""
            ~ Who is curator of {s}?
            Who looks after {s}?
            Who holds the keys of {s}?
            Who takes care of {s}?
            By whom is {s} looked after?
            Tell me who is curator of {s}.
            In whose care is {s}?
            Whom did {s} appoint as its curator?
            Who keeps {s} in order?
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
            {v} is the day on which {s} is closed.
            The closing day of {s} is {v}.
            {S} rests on {v}.
            Come on any day but {v} if you want to see {s}.
            On each {v} {s} is closed to visitors.
        """),
        ways("""
            ~ On which day is {s} closed?
            When is {s} closed?
            Which day do the doors of {s} stay shut?
            On what day does {s} not open?
            Which day of the week is {s} closed?
            Tell me on which day {s} is closed.
            What is the closing day of {s}?
            On which day can nobody visit {s}?
            Which day is the day of rest at {s}?
            On what day is {s} closed?
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
            The town of {v} is where {s} stands.
            {v} is the location of {s}.
            In {v} visitors find {s}.
            {S} is to be found in {v}.
            The site of {s} is {v}.
        """),
        ways("""
            Where does {s} stand?
            ~ In which town is {s}?
            Where does one go to see {s}?
            Where is {s} located?
            In what town can {s} be found?
            Tell me where {s} stands.
            What is the location of {s}?
            Which town is {s} located in?
            To which town must one go to see {s}?
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
            The main exhibit of {s} is a {v}.
            The most famous thing in {s} is a {v}.
            {S} owes its fame to a {v}.
            Inside {s} everybody looks for the {v}.
            {S} owns a {v}, its most famous piece.
        """),
        ways("""
            What is {s} proud of?
            What does {s} show to its visitors?
            What draws crowds to {s}?
            ~ What is the pride of {s}?
            What stands in the great room of {s}?
            Tell me the main exhibit of {s}.
            What is the main exhibit of {s}?
            To what does {s} owe its fame?
            What is the most famous thing in {s}?
            Which exhibit is the pride of {s}?
        """),
        "a {v}",
    ),
)
