"""Made-up names. Every name but a first name belongs to one split, by a checksum of the name."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass, field
from typing import Literal

from training.wording import EntityKind, Split

Gender = Literal["she", "he", "it"]
HELD_OUT_SHARE = 5
"""One name in so many is held out."""

_WOMEN = (
    "Abigail Adela Alice Amalia Anita Annika Astrid Aurora Bianca Bridget Camilla Carla Cecilia "
    "Celine Charlotte Clara Claudia Dalia Delia Diana Edith Elena Elisa Esther Eva Fatima Fiona "
    "Frida Gemma Gloria Grace Hanna Heidi Helen Ines Ingrid Irene Isabel Ivy Jana Joan Judith Juno "
    "Kira Lara Leila Lina Lotte Louisa Lydia Magda Marta Matilda Mira Miriam Nadia Nina Noemi Olga "
    "Petra Rachel Renata Rita Rosa Sabine Sandra Silvia Sonia Susan Tamara Tanya Teresa Ursula "
    "Vera Yara Yvonne Zoe"
).split()
_MEN = (
    "Aaron Abel Adam Aidan Alan Albert Alvin Amos Andre Anton Arne Arthur Axel Basil Boris Bruno "
    "Caleb Cedric Clemens Colin Damian Daniel David Dexter Dylan Edgar Elias Emil Enzo Erik Felix "
    "Finn Frank Gabriel Gavin George Gilbert Hans Hector Henry Hugo Ian Igor Isaac Ivan Jasper "
    "Joel Jonas Joseph Julian Karl Kevin Lars Leon Levi Liam Lorenz Marco Martin Mateo Milo Nathan "
    "Neil Noah Oliver Oscar Owen Pablo Patrick Paul Pedro Philip Quentin Ramon Robin Roland Ruben "
    "Samuel Simon Stefan Theo Tobias Victor Vincent Wesley Yusuf"
).split()
_ONSETS = (
    "B Bl Br C Ch Cl Cr D Dr F Fl Fr G Gl Gr H J K Kl Kr L M N P Ph Pl Pr Qu R S Sh Sk Sl Sm Sn "
    "Sp St Str T Th Tr V W Wh Y Z"
).split()
_VOWELS = "a e i o u ae ai au ea ee ia ie oa oo ou".split()
_CODAS = "b ck d f g l ll lm lt m mb n nd ng nk nt p r rd rk rm rn rt s sk ss st t th v x".split()
_SURNAME_ENDS = (
    "a ano ard aris as ek el ell en enko er ero esh et ey ic ide ier in ini is itz kin ley man "
    "mond o off os ova ow ski son stein sson wood y"
).split()
_TOWN_ENDS = (
    "abad berg borough by chester dale den ford gate grad ham haven heim hill holm ia kirk land "
    "leigh mont mouth nau ona polis port stadt stead ton vale ville wick wood worth"
).split()
_RIVER_ENDS = "a ar e en er i ine is o on ra st u ve".split()
_TRADES = (
    "Bakery|Bank|Breweries|Brothers|Builders|Company|Dairy|Engineering|Foods|Forge|Foundry|Group|"
    "Guild|Holdings|Industries|Labs|Lines|Logistics|Mills|Motors|Optics|Partners|Press|Shipyard|"
    "Systems|Textiles|Tools|Traders|Union|Works"
).split("|")
_ADJECTIVES = (
    "Amber Ancient Blue Broken Copper Crimson Distant Empty Faithful First Frozen Gentle Glass "
    "Golden Green Grey Hidden Hollow Iron Ivory Last Lonely Merry Midnight Morning Northern Paper "
    "Patient Proud Quiet Restless Salt Scarlet Second Silent Silver Sleeping Stone Stubborn "
    "Sunken Swift Velvet Wandering White Wild Winter Wooden Yellow"
).split()
_NOUNS = (
    "Anchor Arrow Atlas Bell Bridge Candle Castle Compass Crown Dawn Door Falcon Feather Fern "
    "Forest Fountain Garden Gull Harbour Harvest Heron Hour Island Key Ladder Lantern Letter "
    "Lighthouse Maple Meadow Mirror Moon Mountain Oak Orchard Otter Owl Pilgrim Queen Raven River "
    "Rose Shadow Sparrow Star Stranger Swallow Thistle Tide Tower Traveller Valley Wind Window"
).split()
_MUSEUM_KINDS = "Archive|Art Museum|Collection|Gallery|Hall|Institute|Museum|Observatory".split("|")

_CHINESE_SURNAMES = "赵钱孙李周吴郑王冯陈蒋沈韩杨朱秦许何吕张孔曹严金魏陶姜谢邹苏潘葛范彭马方袁柳"
_CHINESE_WOMEN = "芳娜敏静丽艳秀英华慧美玲霞莉雪梅琴云莲真环雁"
_CHINESE_MEN = "伟强磊军洋勇杰涛超明刚平辉鹏健斌波峰山诚志亮"
_CHINESE_PLACES = "青白石龙凤云松柳河山金银玉长安平永兴东南西北清泉梅竹桃沙湖"
_CHINESE_TRADES = "纺织厂|钟表厂|造船厂|食品公司|陶瓷厂|茶行|印刷厂|机械厂"


@dataclass(frozen=True, slots=True)
class Entity:
    """Someone or something that passages state facts about."""

    kind: EntityKind
    name: str
    gender: Gender = "it"


def split_of(name: str) -> Split:
    """The split that a name belongs to, the same on every machine."""
    return "held_out" if zlib.crc32(name.encode()) % HELD_OUT_SHARE == 0 else "train"


@dataclass(slots=True)
class NameSource:
    """Makes up names of one split, each once, in an order fixed by `rng`."""

    rng: random.Random
    split: Split
    chinese: bool = False
    _used: set[str] = field(default_factory=set)

    def entity(self, kind: EntityKind) -> Entity:
        if kind != "person":
            return Entity(kind, self._new(kind))
        gender: Gender = self.rng.choice(("she", "he"))
        if self.chinese:
            return Entity(kind, self._new(gender), gender)
        first = self.rng.choice(_WOMEN if gender == "she" else _MEN)
        return Entity(kind, f"{first} {self._new('surname')}", gender)

    def river(self) -> str:
        return self._new("river")

    def _new(self, kind: str) -> str:
        make = self._draw_chinese if self.chinese else self._draw
        while True:
            name = make(kind)
            if name not in self._used and split_of(name) == self.split:
                self._used.add(name)
                return name

    def _draw(self, kind: str) -> str:
        choice = self.rng.choice
        match kind:
            case "surname":
                return self._stem() + choice(_SURNAME_ENDS)
            case "town":
                return self._stem() + choice(_TOWN_ENDS)
            case "river":
                return self._stem() + choice(_RIVER_ENDS)
            case "company":
                return f"{self._stem() + choice(_SURNAME_ENDS)} {choice(_TRADES)}"
            case "museum":
                return f"{self._stem() + choice(_TOWN_ENDS)} {choice(_MUSEUM_KINDS)}"
            case "ship":
                return f"{choice(_ADJECTIVES)} {choice(_NOUNS)}"
            case _:
                return f"The {choice(_ADJECTIVES)} {choice(_NOUNS)}"

    def _stem(self) -> str:
        choice = self.rng.choice
        stem = choice(_ONSETS) + choice(_VOWELS) + choice(_CODAS)
        if self.rng.random() < 0.35:
            stem += choice(_VOWELS) + choice(_CODAS)
        return stem

    def _draw_chinese(self, kind: str) -> str:
        choice = self.rng.choice
        places = choice(_CHINESE_PLACES) + choice(_CHINESE_PLACES)
        match kind:
            case "she" | "he":
                given = _CHINESE_WOMEN if kind == "she" else _CHINESE_MEN
                return choice(_CHINESE_SURNAMES) + choice(given) + choice(given)
            case "town":
                return places + choice("镇城县")
            case "river":
                return places + "河"
            case _:
                return places + choice(_CHINESE_TRADES.split("|"))
