"""What the sentences of libddpcomm name: the rank that is to blame, its host, the operation and its number. Pure."""

from __future__ import annotations

RANK = r'rank (?P<rank>\d+)(?: \((?P<about>[^)]*)\))?'
# In which forms one rank is blamed, best first. The rank that speaks ("rank 0 noticed it", "rank 0 has waited") is not it.
FORMS = (
    rf'\b(?:waits? as well, as|stopped;) {RANK} does not (?:answer|accept)',
    rf'\brank \d+(?: \([^)]*\))? has waited [\d.]+ s for {RANK},',
    rf'\brank \d+(?: \([^)]*\))? called .*, but {RANK} called ',
    rf'^(?:\w+ #\d+: )?{RANK}(?! has waited)(?!\w* \()',
)
HOST = r'\bon (?P<host>[^ ,)]+)'
CALL = r'\b(?P<operation>[a-z]+(?:_[a-z]+)*) #(?P<sequence>\d+)'


def find_rank(sentence: str) -> tuple[int | None, str | None]:
    """The rank that @sentence blames and its host, None for what it does not say."""
    import re # not when the package is imported, as it is needed after a failure only
    for form in FORMS:
        found = re.search(form, sentence)
        if found:
            host = re.search(HOST, found['about'] or '')
            return int(found['rank']), host['host'] if host else None
    return None, None


def find_call(sentence: str) -> tuple[str | None, int | None]:
    """The operation that @sentence names first, and its number."""
    import re
    found = re.search(CALL, sentence)
    return (found['operation'], int(found['sequence'])) if found else (None, None)
