"""Jobs and array tasks as the user named them on a command line: one of them (`JobWord`) or a list (`NamedJobs`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gq.model.tasks import first_task, format_tasks, parse_tasks, task_bit


class JobWord(NamedTuple):
    """A job, or tasks of an array, as the user named them."""

    job_id: int
    tasks: int = 0
    """Tasks of the array, as a set of `gq.model.tasks`; 0: the job, or all of the array."""

    @staticmethod
    def of(job_id: int, task: int | None) -> JobWord:
        return JobWord(job_id, 0 if task is None else task_bit(task))

    @property
    def task(self) -> int | None:
        """First of the tasks; None: the job, or all of the array."""
        return first_task(self.tasks) if self.tasks else None

    def __str__(self) -> str:
        if not self.tasks:
            return str(self.job_id)
        tasks = format_tasks(self.tasks)
        return f"{self.job_id}_{tasks}" if tasks.isdecimal() else f"{self.job_id}_[{tasks}]"


class NamedJobs(NamedTuple):
    """Several jobs, as requests carry them."""

    job_ids: tuple[int, ...]
    tasks: dict[int, str]
    """Selected tasks by array id; such an id is not in `job_ids`."""

    @staticmethod
    def of(words: Iterable[JobWord]) -> NamedJobs:
        """Merge the words, in their order; a whole array includes its tasks."""
        found: dict[int, int] = {}
        for word in words:
            known = found.get(word.job_id, word.tasks)
            found[word.job_id] = known | word.tasks if known and word.tasks else 0
        return NamedJobs(
            tuple(job_id for job_id, tasks in found.items() if not tasks),
            {job_id: format_tasks(tasks) for job_id, tasks in found.items() if tasks},
        )

    def words(self) -> list[JobWord]:
        return [*map(JobWord, self.job_ids), *(JobWord(array, parse_tasks(of)) for array, of in self.tasks.items())]

    def has(self, word: JobWord) -> bool:
        """Whether all jobs and tasks that `word` names are included."""
        tasks = parse_tasks(self.tasks[word.job_id]) if word.job_id in self.tasks else 0
        return word.job_id in self.job_ids or bool(word.tasks and not word.tasks & ~tasks)


def only(word: JobWord) -> NamedJobs:
    return NamedJobs.of([word])
