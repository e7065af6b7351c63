"""Faults of Airflow's components, of a task and its processes, and of what people do to DAGs and runs."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from airflow_mq.testing.loopback import Refused

from .gates import FAILING
from .stage import HERE, Stage, wait_until


@dataclass
class Scene:
    """A run of a DAG on a ring, at a point of its block."""

    stage: Stage
    dag: str
    ring: str
    run: str
    #: Processes that a fault stopped.
    stopped: list[psutil.Process] = field(default_factory=list)

    def task(self) -> psutil.Process:
        """Return the process of the task that runs."""
        running = [task for task in self.stage.airflow.tasks(self.dag, self.run) if task["state"] == "running"]
        return psutil.Process(running[0]["pid"])

    def processes(self, word: str) -> list[psutil.Process]:
        """Return the processes below Airflow or the cluster that have a word in their command."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if word in " ".join(process.cmdline()) and str(self.stage.folder) in str(process.environ()):
                    found.append(process)
        return found


#: XCom with a Spark application, as `airflow_mq.operators.spark.job_listener` names it.
SPARK_JOB = "spark_job"

Act = Callable[[Scene], None]


@dataclass(frozen=True)
class Fault:
    """A fault, and its repair."""

    title: str
    strike: Act
    mend: Act = lambda scene: None
    #: Whether other blocks must drain the ring before the repair.
    lasts: bool = False
    #: Whether it ends with the run that it hits.
    spans: bool = False
    #: Words that the logs of the runs' tasks must then have.
    logged: str = ""
    #: Component that it needs.
    needs: str = "scheduler"


def component(name: str) -> Fault:
    """Return the death of a component with all its children, and its restart."""
    return Fault(
        f"SIGKILL of the {name}",
        lambda scene: scene.stage.airflow.kill(name),
        lambda scene: scene.stage.wait_healthy(name),
        needs=name,
    )


def kill_task(scene: Scene) -> None:
    scene.task().kill()


def kill_worker(scene: Scene) -> None:
    """Kill the executor's worker, which is the task's parent; the task is an orphan then."""
    worker = scene.task().parent()
    assert worker is not None
    worker.kill()


def kill_group(scene: Scene) -> None:
    """Kill the executor's worker, the task and all that the task started."""
    worker = scene.task().parent()
    assert worker is not None
    family = [worker, *worker.children(recursive=True)]
    for act in (psutil.Process.suspend, psutil.Process.kill):
        for process in family:
            with suppress(psutil.NoSuchProcess):
                act(process)


def kill_driver(scene: Scene) -> None:
    """Kill the Python driver, whose parent is spark-submit's JVM."""
    drivers = [one for one in scene.processes("spark/job.py") if "java" not in one.name()]
    assert drivers
    for driver in drivers:
        driver.kill()


def kill_python(scene: Scene) -> None:
    """Kill Spark's Python worker that waits at the gate."""
    psutil.Process(scene.stage.gate(scene.ring, "message").visitors()[0]).kill()


def kill_executor(scene: Scene) -> None:
    """Kill the JVM of the executor that waits at the gate."""
    (python,) = scene.stage.gate(scene.ring, "message").visitors()[:1]
    (jvm,) = [one for one in psutil.Process(python).parents() if "java" in one.name()][:1]
    jvm.kill()


def await_rival(scene: Scene) -> None:
    """Wait until a second attempt has come to the gated message."""
    wait_until(lambda: len(scene.stage.gate(scene.ring, "message").visitors()) > 1, "a second attempt begins")


def read_pages(scene: Scene) -> None:
    """Read Spark's UI while the application runs."""
    job = scene.stage.airflow.xcom(scene.dag, scene.run, "block.process", SPARK_JOB, map_index=0)
    assert scene.stage.canaries.read_pages(job["url"])
    wait_until((scene.stage.folder / f"{scene.ring}.quoted").exists, "a message fails")


def stop_task(scene: Scene) -> None:
    """Stop the task and all that it started, and wait until its lease is over twice."""
    task = scene.task()
    scene.stopped = [task, *task.children(recursive=True)]
    for process in scene.stopped:
        process.suspend()


def wake_task(scene: Scene) -> None:
    for process in reversed(scene.stopped):
        process.send_signal(signal.SIGCONT)


def pause(scene: Scene) -> None:
    scene.stage.airflow.unpause(scene.dag, paused=True)


def unpause(scene: Scene) -> None:
    scene.stage.airflow.unpause(scene.dag)


def delete_file(scene: Scene) -> None:
    """Delete the DAG's file, and wait until Airflow has noticed."""
    airflow = scene.stage.airflow
    (scene.stage.folder / "dags" / "faults_deleted.py").unlink()
    wait_until(lambda: not airflow.get("dags", dag_id_pattern=scene.dag)["dags"], "Airflow misses the file")


def restore_file(scene: Scene) -> None:
    shutil.copy(HERE / "dags" / "faults_deleted.py", scene.stage.folder / "dags")
    airflow = scene.stage.airflow
    wait_until(lambda: airflow.get("dags", dag_id_pattern=scene.dag)["dags"], "Airflow finds the file")


def delete_run(scene: Scene) -> None:
    """Delete the run; Airflow deletes queued runs only, and the scheduler soon starts such a run again."""
    airflow, path = scene.stage.airflow, f"dags/{scene.dag}/dagRuns/{scene.run}"

    def is_deleted() -> bool:
        with suppress(Refused):
            airflow.call("PATCH", path, {"state": "queued"})
            airflow.call("DELETE", path)
            return True
        return False

    wait_until(is_deleted, "Airflow deletes the run")


def fail_xcoms(way: str) -> Act:
    def strike(scene: Scene) -> None:
        (scene.stage.folder / FAILING).write_text(way)

    return strike


def mend_xcoms(scene: Scene) -> None:
    (scene.stage.folder / FAILING).unlink()
