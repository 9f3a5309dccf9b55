"""Word lists: what English attributes can have as values."""

from __future__ import annotations

ANIMALS = tuple(
    "badger beagle beaver bull camel canary cat crane crow deer dog dolphin donkey duck falcon "
    "ferret fox frog goat goose hamster hare heron horse jackdaw lamb leopard lion lizard lynx "
    "magpie mouse newt parrot peacock pelican pigeon pony rabbit raven robin salmon seal snail "
    "snake spaniel squirrel stork swan tiger toad tortoise turtle walrus wolf wren".split()
)
COLOURS = tuple(
    "beige black blue bronze brown copper cream crimson cyan golden green grey indigo khaki lilac "
    "maroon mauve navy olive orange pink purple red rose scarlet silver teal turquoise violet "
    "white yellow".split()
)
DAYS = tuple("Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split())
EXHIBITS = tuple(
    "bronze bell|carved throne|glass crown|golden mask|iron plough|ivory comb|marble lion|"
    "meteorite|mummy|painted shield|silver cup|star map|steam engine|stone calendar|stuffed bear|"
    "sundial|tapestry|water clock|whale skeleton|wooden horse".split("|")
)
FOODS = tuple(
    "baked apples|bean stew|beetroot soup|black bread|cabbage rolls|carrot cake|cheese pie|"
    "cherry tart|chicken soup|corn bread|dumplings|fish soup|fried trout|garlic noodles|goulash|"
    "grilled sardines|honey cake|lamb curry|leek pie|lentils|mashed turnips|meatballs|"
    "mushroom risotto|mussels|onion soup|pancakes|pea soup|pickled herring|plum jam|porridge|"
    "potato salad|pumpkin soup|rice pudding|roast duck|smoked ham|spinach pie|stuffed peppers|"
    "tomato salad|veal stew|waffles".split("|")
)
GOODS = tuple(
    "apricots barley baskets beans blankets boots bottles bricks brooms brushes butter buttons "
    "candles carpets chairs cheese cherries cider clocks coal coffee copper cotton cups flour "
    "garlic glass gloves grain grapes hammers hats hemp herbs honey kettles knives lace ladders "
    "lamps lanterns leather lemons linen marble melons mirrors mushrooms nails needles nuts oil "
    "olives onions paint paper pears pepper plums pottery ropes rugs saddles salt saws scissors "
    "silk soap spices spoons sugar tea tiles tin tobacco tulips umbrellas violins wax wheat wine "
    "wool".split()
)
INSTRUMENTS = tuple(
    "accordion banjo bassoon bugle cello clarinet cornet drum fiddle flute guitar harp horn lute "
    "lyre mandolin oboe organ piano piccolo recorder saxophone sitar trombone trumpet tuba ukulele "
    "viola violin zither".split()
)
JOBS = tuple(
    "baker barber beekeeper blacksmith bookbinder brewer butcher carpenter chemist clerk cobbler "
    "cook dancer dentist diver doctor driver farmer fisher florist forester gardener glazier "
    "goldsmith hatter judge lawyer librarian locksmith mason mechanic miller miner nurse painter "
    "pharmacist pilot plumber poet porter postman potter printer roofer sailor sculptor shepherd "
    "surgeon tailor tanner teacher translator watchmaker weaver welder".split()
)
KEEPSAKES = tuple(
    "badges beetles bells bottles bowls butterflies buttons candlesticks clocks coins combs dolls "
    "fans feathers fossils keys lamps maps marbles masks medals minerals mirrors pebbles pens pins "
    "postcards posters puppets ribbons seashells shells spoons stamps swords teapots thimbles "
    "tickets toys watches whistles".split()
)
MATERIALS = tuple(
    "bamboo basalt brick bronze cedar concrete copper elm flint granite iron larch limestone "
    "marble oak pine quartz sandstone slate steel timber walnut willow".split()
)
MONTHS = tuple(
    "January February March April May June July August September October November December".split()
)
SPORTS = tuple(
    "archery badminton boxing bowling chess climbing cricket curling cycling diving fencing "
    "fishing football golf hiking hockey judo riding rowing rugby running sailing skating skiing "
    "swimming tennis wrestling".split()
)
