"""How the tests check types and shapes: beartype, which takes an int where a float is expected."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
