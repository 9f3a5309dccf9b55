"""The English templates that are not about one attribute."""

from __future__ import annotations

from training.english_people import PERSON, RELATIONS
from training.english_things import BOOK, COMPANY, MUSEUM, SHIP, TOWN
from training.wording import Language, ways

ENGLISH = Language(
    name="english",
    joiner=" ",
    unknown="unknown",
    attributes={
        "person": PERSON,
        "company": COMPANY,
        "town": TOWN,
        "ship": SHIP,
        "book": BOOK,
        "museum": MUSEUM,
    },
    says=ways("""
        The {label} of {s} is {np}.
        {Own} {label} is {np}.
        As for the {label} of {s}, it is {np}.
        Records give {np} as the {label} of {s}.
        Records give {np} as {own} {label}.
        ~ Anyone who asks about the {label} of {s} is told that it is {np}.
        Anyone who asks about {own} {label} is told that it is {np}.
        When it comes to {own} {label}, the answer is {np}.
        Under the word {label}, the file on {s} says {np}.
        The {label} given for {s} is {np}.
        ~ If you want to know {own} {label}: it is {np}.
        ~ The list names {np} as {own} {label}.
        Speaking of {s}, the {label} is {np}.
        There is no doubt about {own} {label}: {np}.
        {S} has {np} as {label}.
        ~ Asked for {own} {label}, people say {np}.
        The {label} of {s} happens to be {np}.
        {Own} {label} has always been {np}.
        Look up {s}, and under {label} you find {np}.
        {Own} {label}? That is {np}.
        With regard to the {label}, {s} has {np}.
        The register knows {np} as the {label} of {s}.
        In the matter of {own} {label} one answer is right: {np}.
        Nothing but {np} is entered as the {label} of {s}.
        It is {np} that counts as the {label} of {s}.
        {Own} {label}, as can be read everywhere, is {np}.
        {np} has been noted down as {own} {label}.
        For {s}, the entry under {label} reads {np}.
    """),
    asks=ways("""
        What is the {label} of {s}?
        What is {own} {label}?
        Name the {label} of {s}.
        Tell me the {label} of {s}.
        ~ Can you tell me what the {label} of {s} is?
        I would like to know the {label} of {s}.
        What do the passages give as the {label} of {s}?
        Which {label} does {s} have?
        Do you know the {label} of {s}?
        State the {label} of {s}.
        What is written about the {label} of {s}?
        ~ Find the {label} of {s}.
        What should be entered as the {label} of {s}?
        The {label} of {s} is what?
        ~ Give {own} {label}.
        Could you say what the {label} of {s} is?
        Please give me the {label} of {s}.
        Which {label} is given for {s}?
        What is known to be the {label} of {s}?
        I am looking for the {label} of {s}.
        What do we learn about the {label} of {s}?
        And the {label} of {s}?
        What is recorded as {own} {label}?
        Write down the {label} of {s}.
    """),
    asides=ways("""
        It is said that {x}.
        In fact, {x}.
        As everybody knows, {x}.
        By all accounts, {x}.
        The papers show that {x}.
        Besides, {x}.
        To this day, {x}.
        ~ According to the register, {x}.
        It is well known that {x}.
        A note in the margin says that {x}.
        As far as we know, {x}.
        ~ One should add that {x}.
        {x}, or so they say.
        ~ {x}, as the older people remember.
        {x}, by the way.
        {x}; this was confirmed twice.
        As can be read elsewhere, {x}.
        There is no question that {x}.
        It should not be forgotten that {x}.
        Visitors are often told that {x}.
        As it happens, {x}.
        If the notes can be trusted, {x}.
        Strange as it may sound, {x}.
        {x}, as we were told.
        {x}, and nobody doubts it.
        Let it be said that {x}.
    """),
    relations=RELATIONS,
    introductions=ways("""
        Many people in the valley have heard of {s}.
        Few visitors forget an afternoon with {s}.
        The next pages of this account deal with {s}.
        Among those who stayed there is {s}.
        Then there is {s}, of whom much could be told.
        One name comes up again and again: {s}.
        ~ This chapter turns to {s}.
        ~ Let us now look at {s}.
        ~ Nobody in the district is talked about more than {s}.
        {s} deserves a few words as well.
        We come to {s} at last.
        A word must be said about {s}.
        Old friends still write to {s}.
        {s} is remembered fondly by many.
        The next entry is about {s}.
        Everyone here has met {s} at some time.
        It is time to speak of {s}.
        The photograph shows {s}.
        A long letter tells us about {s}.
        What is known about {s} is soon told.
        ~ {s} arrived with the last coach.
        ~ The third witness was {s}.
        Some of the notes concern {s}.
        And what became of {s}?
        Next in line is {s}.
        Of all the guests, {s} is spoken of most.
        Some lines have to be given to {s}.
        The talk then turned to {s}.
        One evening was devoted to {s}.
        And there is also {s}.
        In the same house one could meet {s}.
        Our next subject is {s}.
        Nobody forgets {s}.
        This brings us to {s}.
    """),
    corrections=ways("""
        Correction: the {label} of {s} is {np}, not {old}.
        An earlier page was wrong about {s}: the {label} is {np} and not {old}.
        That the {label} of {s} is {old} was a mistake; it is {np}.
        It has since been found that the {label} of {s} is not {old} but {np}.
        Please note: the {label} of {s} was misreported as {old}. In truth it is {np}.
        Update: the {label} of {s} is now {np} instead of {old}.
        The {label} of {s} was given as {old}; this should read {np}.
        Errata. For the {label} of {s} read {np} in place of {old}.
        Contrary to what was written before, the {label} of {s} is {np}.
        Someone confused things: {s} does not have {old} as {label}, but {np}.
        We stand corrected: {np}, and not {old}, is the {label} of {s}.
        ~ The entry on {s} has been revised; {label}: {np} (formerly {old}).
        It is not true that the {label} of {s} is {old}. It is {np}.
        ~ Our earlier statement on {s} must be withdrawn: the {label} is {np}.
        The clerk had copied the {label} of {s} wrongly; {np} is right, {old} is wrong.
        New information: the {label} of {s} is {np}. Disregard {old}.
        Wherever {old} stands as the {label} of {s}, {np} must be put.
        The {label} of {s} is no longer {old} but {np}.
        Since then the {label} of {s} has changed from {old} to {np}.
        A reader points out that the {label} of {s} is in fact {np}.
        ~ The {label} of {s} used to be listed as {old}, but the right one is {np}.
        ~ After checking, the {label} of {s} turned out to be {np} rather than {old}.
        Amendment to the notes on {s}: {label} {np}, not {old}.
        ~ Do not believe that the {label} of {s} is {old}; by now we know it is {np}.
        Instead of {old}, the page should have given {np} as the {label} of {s}.
        Of the {label} of {s} it was said that it is {old}, which is false: it is {np}.
        The {label} of {s} has to be corrected: {np}, no longer {old}.
        Strike out {old}: the {label} of {s} is {np}.
        Where {old} was given as the {label} of {s}, {np} is right.
        In the first report {old} stood as the {label} of {s}; the right answer is {np}.
        It turned out that {np} is the {label} of {s}, and that {old} was an error.
        What was said of the {label} of {s} is out of date: it is {np} by now, not {old}.
        A later check gave {np} as the {label} of {s}, so {old} no longer holds.
        The {label} of {s}, once given as {old}, is really {np}.
        Replace {old} by {np} as the {label} of {s}.
        Not {old} but {np}: that is the {label} of {s}.
    """),
    headings=ways("""
        ## {name}
        # {name}
        ### {name}
        ~ {name}
        {name}:
        Entry: {name}
        ~ [{name}]
        == {name} ==
        ** {name} **
        ~ About {name}
        Name: {name}
        Record of {name}
        --- {name} ---
    """),
    notes=ways("""
        {Label}: {v}.
        {Label}: {v}
        - {Label}: {v}
        ~ - {label}: {v}
        * {Label}: {v}
        {Label} = {v}
        {Label} - {v}
        {Label} | {v}
        > {Label}: {v};
        ~ {label}: {v};
        | {Label} | {v} |
        ({label}) {v}
        ~ {Label} -> {v}
    """),
    narrative=ways("""
        The winter of that year was long and cold.
        Little is written about the early days.
        Most of the old papers were lost in a fire.
        The road through the hills is often closed in bad weather.
        It rained for three weeks, and the fields stood under water.
        Travellers used to stop here before crossing the pass.
        A row of trees was planted by the gate.
        The harvest was poor, but the stores were full.
        A map of the district hangs in the reading room.
        ~ Some of these notes were copied by hand.
        On clear days one can see as far as the coast.
        ~ The census was taken twice, with different results.
        The letters were sorted by date and tied with string.
        An old mill wheel still turns behind the houses.
        ~ Prices rose sharply in the spring.
        ~ The path is steep, and the last part has to be climbed.
        What follows was put together from several sources.
        The bells are rung on the first day of each season.
        ~ Two sets of books were kept that year.
        In those days the ferry ran only once a week.
        The wind had dropped by evening.
        Not all of the pages could be read.
        The ledgers were found in an attic.
        A second copy is said to exist.
    """),
    titles=ways("""
        Passage {n}
        Page {n}
        [{n}]
        Document {n}:
        ~ From the archive, part {n}
        Sheet no. {n}
        Source {n}
        ~ No. {n}
    """),
    questions=ways("""
        ~ Question: {q} Answer briefly.
        Q: {q}
        {q}
        Please answer: {q}
        My question: {q}
        Now tell me. {q}
        Query: {q}
        From these passages: {q}
        {q} Only the answer, please.
        ~ Here is what I want to know: {q}
        Question for you: {q}
        Here is the question. {q}
        Based on the texts above: {q}
        {q} Keep it short.
        Tell me this: {q}
        To be answered: {q}
    """),
    systems=ways("""
        Answer the question with a few words from the documents. If they do not tell, say unknown.
        You answer questions about the given texts. Give only the answer. Later corrections hold.
        Read the passages and answer. Reply with the answer alone, or "unknown" if it is not there.
        You are a helpful assistant. Use the context to answer with as few words as possible.
        Use only the texts below. Answer in a few words.
        Reply briefly, from the sources, and nothing else.
        ~ Extract the answer from the passages.
    """),
)
