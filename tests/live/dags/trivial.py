"""The least that an Airflow can do: a task that returns what it was given."""

from __future__ import annotations

from airflow.sdk import Param, dag, task


@dag(schedule=None, params={"word": Param("nothing", type="string")})
def trivial() -> None:
    @task
    def say(params: dict[str, str] | None = None) -> str:
        word = (params or {})["word"]
        print(f"the word is {word}")
        return word

    say()


trivial()
