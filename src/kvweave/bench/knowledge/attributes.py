"""What can be said of an entity: attributes with their wordings and values.

In every template `{s}` is the subject ("Orla Kelmund", "She", "the teacher of Orla Kelmund"),
`{own}` its possessive ("Orla Kelmund's", "Her"), `{s_low}` and `{own_low}` the same within a
sentence, and `{v}` the value. Values that follow "a" start with a consonant sound.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from kvweave.bench.knowledge.names import EntityKind, NameSource


@dataclass(frozen=True, slots=True)
class Attribute:
    """One thing an entity has exactly one of.

    `values` is a word list, or the name of what is made up: "town", "river", "person", "year".
    `noun` is the value as "the pet is ..." goes on.
    """

    key: str
    label: str
    statements: tuple[str, ...]
    questions: tuple[str, ...]
    values: tuple[str, ...] | str
    noun: str = "{v}"

    def make_value(self, rng: random.Random, names: NameSource) -> str:
        """A value for this attribute; made-up names are new ones."""
        match self.values:
            case "town":
                return names.town().name
            case "river":
                return names.river()
            case "person":
                return names.person().name
            case "year":
                return str(rng.randint(1180, 1899))
            case words:
                return rng.choice(words)

    @property
    def mentions_person(self) -> bool:
        """Whether a statement of it names a person, to whom a later "he" or "she" could point."""
        return self.values == "person"


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ATTRIBUTES: dict[EntityKind, tuple[Attribute, ...]] = {
    "person": (
        Attribute(
            "birthplace",
            "birthplace",
            (
                "{s} was born in {v}.",
                "{own} birthplace is {v}.",
                "{s} came into the world in {v}.",
            ),
            ("Where was {s} born?", "In which town was {s} born?"),
            "town",
        ),
        Attribute(
            "profession",
            "profession",
            (
                "{s} works as a {v}.",
                "{s} earns a living as a {v}.",
                "{own} profession is that of a {v}.",
            ),
            ("What does {s} work as?", "What is the profession of {s}?"),
            _words(
                "baker barber blacksmith bookbinder brewer butcher carpenter clockmaker cobbler "
                "cook cooper doctor gardener glassblower goldsmith hatter joiner lawyer locksmith "
                "mason miller painter plumber potter printer saddler sailor shepherd tailor "
                "tanner thatcher"
            ),
            noun="a {v}",
        ),
        Attribute(
            "instrument",
            "instrument",
            (
                "{s} plays the {v}.",
                "{s} has played the {v} for years.",
                "{own} instrument is the {v}.",
            ),
            ("Which instrument does {s} play?", "What instrument does {s} play?"),
            _words(
                "banjo bassoon bugle cello clarinet cornet drum fiddle flute guitar harp horn lute "
                "lyre mandolin piano piccolo recorder saxophone trombone trumpet tuba viola zither"
            ),
            noun="the {v}",
        ),
        Attribute(
            "pet",
            "pet",
            (
                "{s} keeps a {v} as a pet.",
                "{own} pet is a {v}.",
                "{s} shares the house with a pet {v}.",
            ),
            ("Which animal does {s} keep as a pet?", "What kind of pet does {s} have?"),
            _words(
                "beagle canary cat chinchilla donkey duck ferret finch fox goat goose hamster hare "
                "hedgehog lizard magpie parrot pigeon poodle pony rabbit raven snake spaniel "
                "squirrel tortoise turtle"
            ),
            noun="a {v}",
        ),
        Attribute(
            "dish",
            "favourite dish",
            (
                "{own} favourite dish is {v}.",
                "{s} likes nothing better to eat than {v}.",
                "{s} names {v} as a favourite dish.",
            ),
            ("What is the favourite dish of {s}?", "Which dish does {s} like best?"),
            (
                *_words(
                    "bean-stew dumplings fishcakes goulash lasagne meatballs pancakes porridge"
                ),
                *("baked beans", "carrot soup", "cheese pie", "chicken soup", "fried trout"),
                *(
                    "leek soup",
                    "mushroom pie",
                    "pea soup",
                    "plum cake",
                    "potato salad",
                    "rice pudding",
                ),
                *("roast duck", "smoked ham", "stuffed peppers", "tomato soup", "turnip stew"),
            ),
        ),
        Attribute(
            "collection",
            "collection",
            (
                "{s} collects {v}.",
                "{own} collection consists of {v}.",
                "{s} has been collecting {v} since childhood.",
            ),
            ("What does {s} collect?", "Which things does {s} collect?"),
            _words(
                "badges beetles bells bottles bowls butterflies buttons candlesticks clocks coins "
                "combs dolls feathers fossils keys lamps maps masks medals mirrors pebbles "
                "postcards puppets ribbons seashells spoons stamps teapots thimbles whistles"
            ),
        ),
        Attribute(
            "coat",
            "coat colour",
            (
                "{s} always wears a {v} coat.",
                "{own} coat is {v}.",
                "In town {own_low} {v} coat is known to everyone.",
            ),
            ("What colour is the coat of {s}?", "Which colour of coat does {s} wear?"),
            _words(
                "beige black blue bronze brown cream crimson golden green grey lilac maroon pink "
                "purple red scarlet silver teal turquoise violet white yellow"
            ),
        ),
        Attribute(
            "holiday",
            "holiday place",
            (
                "{s} spends every summer in {v}.",
                "{own} summers are spent in {v}.",
                "Every summer {s_low} travels to {v}.",
            ),
            ("Where does {s} spend every summer?", "In which town does {s} spend the summer?"),
            "town",
        ),
    ),
    "company": (
        Attribute(
            "seat",
            "seat",
            (
                "{s} has its seat in {v}.",
                "The head office of {s_low} is in {v}.",
                "{s} is run from {v}.",
            ),
            ("In which town does {s} have its seat?", "Where is the head office of {s}?"),
            "town",
        ),
        Attribute(
            "product",
            "main product",
            (
                "{s} makes {v}.",
                "{own} main product is {v}.",
                "{s} is known for its {v}.",
            ),
            ("What does {s} make?", "What is the main product of {s}?"),
            _words(
                "barrels baskets blankets boots bricks brushes candles carpets carriages chairs "
                "gloves hats hinges kettles ladders lanterns nails needles paper pottery ropes "
                "saddles sails scales scissors soap tiles umbrellas wheels"
            ),
        ),
        Attribute(
            "founded",
            "founding year",
            (
                "{s} was founded in {v}.",
                "{s} has existed since {v}.",
                "The year {v} saw the founding of {s_low}.",
            ),
            ("In which year was {s} founded?", "When was {s} founded?"),
            "year",
        ),
        Attribute(
            "director",
            "director",
            (
                "The director of {s_low} is {v}.",
                "{s} is directed by {v}.",
                "{own} director is {v}.",
            ),
            ("Who directs {s}?", "Who is the director of {s}?"),
            "person",
        ),
        Attribute(
            "emblem",
            "emblem",
            (
                "The emblem of {s_low} is a {v}.",
                "{s} has a {v} as its emblem.",
                "A {v} is the emblem of {s_low}.",
            ),
            ("What is the emblem of {s}?", "What does {s} have as its emblem?"),
            _words(
                "badger bear beaver beetle bull crane crow dolphin dragon falcon heron lion lynx "
                "pelican pike salmon seahorse stag stork swan thistle tower wolf wreath"
            ),
            noun="a {v}",
        ),
    ),
    "town": (
        Attribute(
            "river",
            "river",
            (
                "{s} lies on the river {v}.",
                "The river {v} flows through {s_low}.",
                "{own} river is the {v}.",
            ),
            ("On which river does {s} lie?", "Which river flows through {s}?"),
            "river",
            noun="the {v}",
        ),
        Attribute(
            "charter",
            "charter year",
            (
                "{s} received its charter in {v}.",
                "{s} has had a charter since {v}.",
                "The charter of {s_low} dates from {v}.",
            ),
            (
                "In which year did {s} receive its charter?",
                "From which year is the charter of {s}?",
            ),
            "year",
        ),
        Attribute(
            "mayor",
            "mayor",
            (
                "The mayor of {s_low} is {v}.",
                "{own} mayor is {v}.",
                "{s} has {v} as its mayor.",
            ),
            ("Who is the mayor of {s}?", "Who is mayor in {s}?"),
            "person",
        ),
        Attribute(
            "market",
            "market goods",
            (
                "The market of {s_low} is known for its {v}.",
                "{s} is famous for the {v} sold at its market.",
                "People come to the market of {s_low} for the {v}.",
            ),
            ("What is the market of {s} known for?", "What is sold at the famous market of {s}?"),
            _words(
                "butter cabbages carrots cheese cherries cider garlic geese grapes ham herbs "
                "honey lace leeks melons mushrooms pears peppers plums pumpkins salt strawberries "
                "tulips walnuts wine wool"
            ),
        ),
        Attribute(
            "bridge",
            "bridge material",
            (
                "The old bridge of {s_low} is made of {v}.",
                "{own} bridge is built of {v}.",
                "In {s_low} the bridge is made entirely of {v}.",
            ),
            ("What is the bridge of {s} made of?", "Of which material is the bridge of {s} built?"),
            _words(
                "basalt brick cedar concrete copper flint granite larch limestone marble pine "
                "sandstone slate steel timber willow"
            ),
        ),
    ),
}
