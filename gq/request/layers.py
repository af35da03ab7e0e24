"""The layers that job options come in: the script, then environment variables, then the command line.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gq.errors import UsageError
from gq.near_miss import nearest
from gq.request.getopt import Arguments
from gq.request.option import Option, ParsedOption, not_available
from gq.request.options import JOB_OPTIONS, options_of

_ON = frozenset({"", "1", "yes", "true", "on"})
_OFF = frozenset({"0", "no", "false", "off"})


def input_variables(command: str, environ: Mapping[str, str]) -> list[ParsedOption]:
    """Read options from ``GQSUB_<OPTION>`` (``GQRUN_…``, ``GQALLOC_…``); refuse a variable that names no option."""
    prefix = f"{command.upper()}_"
    known = {variable_name(command, option): option for option in options_of(command)}
    given: list[ParsedOption] = []
    for variable in sorted(name for name in environ if name.startswith(prefix)):
        option = known.get(variable)
        if option is None:
            from gq.request.slurm_options import refusal  # loaded only when something is wrong

            if found := refusal(command, f"--{variable.removeprefix(prefix).lower().replace('_', '-')}", variable):
                raise found
            shown = [name.removeprefix(prefix) for name, option in known.items() if not option.is_unbuilt]
            close = nearest(variable.removeprefix(prefix), shown)
            hint = f"did you mean `{prefix}{close}`?" if close else f"`{command} --help` lists the options"
            raise UsageError("unknown_option", f"`{variable}` in the environment does not name an option", hint)
        given.extend(_from_variable(option, variable, environ[variable]))
    return given


def variable_name(command: str, option: Option) -> str:
    """Return the variable of an option: ``gqsub``, ``cpus-per-task`` → ``GQSUB_CPUS_PER_TASK``."""
    return f"{command}_{option.name}".upper().replace("-", "_")


def _from_variable(option: Option, variable: str, value: str) -> list[ParsedOption]:
    if option.takes_value:
        if not value and option.if_bare is not None:
            value = option.if_bare
        return [ParsedOption(option.name, value, variable)]
    if value.lower() in _OFF:
        return []
    if value.lower() not in _ON:
        raise UsageError("bad_value", f"`{variable}`: `{value}` is neither yes nor no", "use 1 or 0")
    return [ParsedOption(option.name, "", variable)]


def merge(*layers: Iterable[ParsedOption]) -> list[ParsedOption]:
    """Merge layers of options, the weakest first: an option of a stronger layer replaces itself and its rivals.

    Within one layer rivals exclude each other.  Unbuilt options are refused here, in every layer.
    """
    merged: list[ParsedOption] = []
    for layer in layers:
        stronger = list(layer)
        _refuse_unbuilt(stronger)
        _refuse_rivals(stronger)
        merged = [
            remainder for weaker in merged if (remainder := _remainder_of(weaker, stronger)) is not None
        ] + stronger
    return merged


def _remainder_of(weaker: ParsedOption, stronger: Iterable[ParsedOption]) -> ParsedOption | None:
    """Return the part of an option that a stronger layer does not override, or None."""
    for option in stronger:
        if option.name == weaker.name:
            return None
        if _is_rival(option, weaker):
            return _without_gpus(weaker) if weaker.name == "gres" else None
    return weaker


def _is_rival(option: ParsedOption, other: ParsedOption) -> bool:
    """Whether the options are rivals; ``--gres`` is one only if it requests GPUs."""
    says_other = [gres for gres in (option, other) if gres.name == "gres" and _without_gpus(gres) == gres]
    return other.name in _BY_NAME[option.name].rivals and not says_other


def _without_gpus(gres: ParsedOption) -> ParsedOption | None:
    parts = [part for part in gres.value.split(",") if part.strip().partition(":")[0] != "gpu"]
    return ParsedOption(gres.name, ",".join(parts), gres.written, gres.source) if parts else None


_BY_NAME = {option.name: option for option in JOB_OPTIONS}


def _refuse_unbuilt(layer: Iterable[ParsedOption]) -> None:
    for option in layer:
        if _BY_NAME[option.name].is_unbuilt:
            raise not_available(option.place)


def _refuse_rivals(layer: Iterable[ParsedOption]) -> None:
    seen: dict[str, ParsedOption] = {}
    for option in layer:
        for rival in _BY_NAME[option.name].rivals:
            if rival in seen and rival != option.name and _is_rival(option, seen[rival]):
                message = f"{option.place} and {seen[rival].place} exclude each other"
                raise UsageError("contradiction", message, "give one of them")
        seen[option.name] = option


def job_arguments(
    command: str, given: Iterable[ParsedOption], environ: Mapping[str, str], header: Iterable[ParsedOption] = ()
) -> Arguments:
    """Return the effective job options: command line over variables over script.  Other options are left out."""
    return Arguments(
        merge(header, input_variables(command, environ), [option for option in given if option.name in _BY_NAME])
    )
