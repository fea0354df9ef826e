"""The text of typed turns: as many short words as the trace has tokens, drawn so that no two turns begin alike."""

import numpy as np

from workloads.seeds import stream
from workloads.trace import Turn

_TEXT = """
able acid aged also area army away baby back ball band bank base bath bear beat bell belt best bird blow
blue boat body bone book born both bowl bulk burn bush busy call calm came camp card care case cash cast
cell chat chip city club coal coat code cold come cook cool copy cost crew crop dark data date dawn days
dead deal dear debt deep deny desk dial diet disc dish door down draw drop dust duty each earn east easy
edge else even ever face fact fair fall farm fast fate fear feed feel file fill film find fine fire firm
fish five flat flow food foot form fort four free fuel full fund gain game gate gear gift girl give glad
goal gold golf good gray grow hair half hall hand hang hard have head hear heat help here hero high hill
hold hole holy home hope host hour huge idea inch iron item join jump jury just keep kick kind king knee
know lack lady lake land lane last late lead leaf left less life lift like line link list live load loan
lock long look lord lose loss love luck made mail main make many mark mass meal mean meat meet menu mere
mile milk mind mine miss mode mood moon more most move much must name navy near neck need news next nice
nine none nose note okay once only open oral over pace pack page paid pain pair palm park part pass past
path
"""
WORDS = tuple(_TEXT.split())
"""Common enough to be one token each in most vocabularies. [chosen]"""


def words(seed: int, session: int, turn: int, count: int, purpose: str = "prompt") -> str:
    """Return `count` words of `turn`, the same at each call; `purpose` names the stream."""
    drawn: np.ndarray = stream(seed, f"live {purpose} {session} {turn}").integers(len(WORDS), size=count)
    return " ".join(WORDS[i] for i in drawn.tolist())


def spoken_words(seed: int, turn: Turn) -> str:
    """Return the words of the reply to `turn`: one for each of its tokens."""
    return words(seed, turn.session, turn.turn, turn.output_tokens, "reply")
