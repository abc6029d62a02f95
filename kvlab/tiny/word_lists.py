"""The words and sentences that the tiny model's documents are made of. Each word is one token.

The order is part of the data: seeded draws from these lists repeat as long as it stays.
"""


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split())


GIRLS = _split("""
    Ada Anna Bella Clara Cora Daisy Donna Edith Ella Emma Fiona Flora Freya Gina Grace Greta Hanna
    Helen Holly Ida Iris Ivy Jane Julia June Kate Lena Lily Lola Lucy Maya Mia Mona Nina Nora Olga
    Olive Paula Pearl Rita Rosa Ruby Sara Stella Tess Vera Wanda Zoe""")
BOYS = _split("""
    Adam Alan Arthur Ben Boris Carl Colin Dan David Denis Edgar Eric Felix Finn Frank Fred George
    Gus Harry Henry Hugo Igor Ivan Jack Jacob James Joel Karl Ken Leo Liam Louis Luke Mark Martin
    Max Noah Omar Oscar Otto Paul Peter Ralph Robin Sam Simon Tom Will""")
NAMES = GIRLS + BOYS
THINGS = _split("""
    key book lamp cup hat ring map coin bell kite ball drum boat shell pen box spoon rope stone
    clock candle basket blanket bottle bucket button camera chair comb crown doll fan flag flute
    glove hammer jar kettle ladder letter mirror nail needle pillow pipe plate pot purse ribbon
    saddle scarf shoe sled sword table tent towel toy violin whistle""")
COLOURS = _split("red blue green yellow white black brown golden silver pink purple grey")
PLACES = _split("""
    kitchen garden forest school library market barn harbour tower bakery park mill castle meadow
    cave attic cellar church bank cinema circus desert factory farm field hall hospital hotel hut
    island lighthouse museum office orchard palace prison shed stable stadium station street studio
    temple theatre tunnel valley village zoo""")
ANIMALS = _split("""
    cat dog rabbit bear fox mouse horse duck frog pig goat bat bee bird camel cow crab crow deer
    donkey dragon fish goose hen lamb lion lizard monkey parrot penguin pigeon pony sheep snail
    snake spider swan tiger turtle wolf""")
FOODS = _split("""
    bread soup cheese honey cake rice pie nuts milk butter beans berries carrots cherries chocolate
    corn cream grapes ham jam lemons melons mushrooms noodles olives onions oranges pasta peaches
    pears peas pepper plums pizza potatoes salad sugar tea toast tomatoes""")
JOBS = _split("""
    baker butcher cook dancer dentist doctor driver farmer fisher guard hunter judge king lawyer
    miner nurse painter pilot poet potter prince queen sailor singer smith soldier tailor teacher
    waiter writer""")
FEELINGS = _split("""
    happy sad tired hungry proud scared angry calm brave lonely bored cold curious glad shy sick
    sleepy strong warm weak""")
NUMBERS = tuple(str(n) for n in range(10, 70))
WEATHER = _split("sunny rainy windy snowy foggy cloudy stormy hot")
TRAITS = _split("small big tall young kind clever quiet funny gentle lazy")
CITIES = _split("""
    Athens Berlin Boston Cairo Dublin Geneva Lima Lisbon London Madrid Milan Moscow Munich Naples
    Oslo Oxford Paris Prague Rome Sydney Tokyo Venice Vienna Warsaw Zurich Delhi Havana Quito Riga
    Sofia""")
GAMES = _split("""
    chess tennis football golf hockey cricket rugby cards darts bowls marbles dominoes piano guitar
    trumpet cello harp trombone organ banjo""")
LANGUAGES = _split("""
    French German Spanish Italian Dutch Danish Greek Latin Polish Russian Turkish Welsh Irish Hindi
    Arabic Chinese Japanese Korean Swedish Finnish""")

RULES = (
    "You are a helpful assistant.",
    "You answer questions about the notes.",
    "Read all the notes before you answer.",
    "Use only the notes and nothing else.",
    "Answer in one short sentence.",
    "Be kind and polite to all people.",
    "Say the name of the person in the answer.",
    "Do not guess and do not add things.",
    "Every word in the notes is true.",
    "The notes may be long.",
    "Some notes are stories and some notes are facts.",
    "Tell a story when you are asked for a story.",
    "Use simple words that a child can read.",
    "Keep the answer short and clear.",
    "The people in the notes live in one small town.",
    "Work with care and take your time.",
    "You are a friendly teacher in a small school.",
    "You are a careful librarian.",
)

# What a story's sentences are filled with; pronouns, friend and elsewhere follow from these.
STORY_SLOTS = {
    "hero": NAMES,
    "colour": COLOURS,
    "thing": THINGS,
    "place": PLACES,
    "animal": ANIMALS,
    "food": FOODS,
    "feeling": FEELINGS,
    "weather": WEATHER,
    "trait": TRAITS,
    "job": JOBS,
}

# A story takes one sentence of each row, or none where the row offers "".
STORY = (
    (
        "One {weather} day {hero} went to the {place}.",
        "Long ago {hero} lived near the {place}.",
        "There was a {trait} child called {hero} who loved the {place}.",
        "It was a {weather} morning and {hero} was in the {place}.",
    ),
    (
        "{hero} had a {colour} {thing} and took it everywhere.",
        "{He} wanted to find a {colour} {thing}.",
        "{hero} had lost {his} {colour} {thing} and felt sad.",
        "In the grass {he} saw a {colour} {thing}.",
    ),
    (
        "There {he} met a {trait} {animal}.",
        "A {animal} came down the road and looked at the {thing}.",
        "Then a {trait} {animal} ran away with the {thing}.",
        "",
    ),
    (
        "{hero} asked {friend} for help.",
        "Soon {friend} came to help {him}.",
        "{He} called {his} friend {friend}.",
        "A {job} called {friend} heard {him} and came.",
    ),
    (
        "They walked from the {place} to the {elsewhere}.",
        "They looked in the {elsewhere} and behind the door.",
        "It was {weather}, so they waited in the {elsewhere}.",
        "",
    ),
    (
        "They ate some {food} and talked until the evening.",
        "{friend} gave {hero} some {food} to eat.",
        "They were hungry, so they shared the {food}.",
        "",
    ),
    (
        "At last {hero} found the {thing} in the {elsewhere}.",
        "The {animal} gave the {thing} back to {hero}.",
        "The {colour} {thing} was in the {elsewhere} all the time.",
        "{friend} saw the {colour} {thing} first and gave it to {hero}.",
    ),
    (
        "{hero} thanked {friend} and the {animal}.",
        "{hero} was happy and felt {feeling} no more.",
        "{hero} and {friend} laughed and danced.",
        "",
    ),
    (
        "They went home before it was dark.",
        "From that day on {hero} and {friend} were friends.",
        "That night {hero} slept very well.",
        "And {hero} never lost the {thing} again.",
    ),
)
STORY_REQUESTS = (
    "Tell me a story about {hero} and a {colour} {thing}.",
    "I want to hear about {hero} and the {colour} {thing}.",
    "Tell me about {hero} in the {place} with a {colour} {thing}.",
)

# What only training documents use: the drills, and the examples of the book's own sections.
DRILL_WORDS = (
    *(*NAMES, *THINGS, *COLOURS, *PLACES, *ANIMALS, *FOODS),
    *(*JOBS, *FEELINGS, *NUMBERS, *CITIES, *GAMES, *LANGUAGES),
)
DRILL_LINKS = _split(
    "is in the a has of likes was to with and for from at on his her very owns gave took saw found"
)
CHAPTER_RULES = (
    ("You are a helpful AI writer.",),
    ("You are a helpful AI writer.", "Please write in a professional manner."),
    ("Please write in a professional manner.",),
)
CHAPTER_SENTENCES = (
    "A gentle breeze stirred the leaves as children laughed in the distance.",
    "A gentle breeze stirred the flags as children laughed in the distance.",
    "A gentle breeze stirred the leaves.",
    "The children laughed in the distance.",
    "A breeze stirred the flags in the distance.",
)
