"""The bugs: each is what somebody could write in good faith, as a change of the source's text, and who must notice.

An edit names text that must occur exactly once; when the source has moved on, the run stops and says so.
"""

from typing import NamedTuple


class Edit(NamedTuple):
    """One change: `sound` is what the source says, `broken` what it says with the bug."""

    file: str
    sound: str
    broken: str


class Bug(NamedTuple):
    """A planted bug, what is wrong with it, and the tests that must turn red."""

    name: str
    about: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]


STORE = "headwater/stores/sqlite/store.py"
SHARED_FILE = "headwater/stores/sqlite/shared_file.py"
WRITE_LOCK = "headwater/stores/sqlite/write_lock.py"
WRITER = "headwater/stores/tables/writer.py"
SEGMENTS = "headwater/stores/tables/segments.py"
TRANSFER = "headwater/stores/transfer.py"
MOVING = "tests/scenarios/test_moving_a_used_store.py"
IMAGE_KEEPER = "headwater/stores/bucket/image_keeper.py"
ONE_STORE = "tests/stores/bucket/test_one_store.py"
STANDING_BY = "tests/stores/bucket/test_standing_by.py"
FRONT = "headwater/doors/front.py"
FRONT_TESTS = "tests/doors/test_front.py"
LOST_BUCKETS = "tests/faults/test_lost_buckets.py"
STUCK_BUCKETS = "tests/scenarios/test_stuck_buckets.py"
POSTGRES_COMMITS = "headwater/stores/postgres/commit_connection.py"
POSTGRES_GUARD = "headwater/stores/postgres/sql/commits.sql"
POSTGRES_HELD = "tests/stores/test_postgres_long_transactions.py"
RETENTION = "headwater/stores/tables/retention.py"
CATALOG = "headwater/stores/tables/catalog.py"
POPS = "headwater/stores/tables/pops.py"
CONNECTION = "headwater/stores/sqlite/connection.py"
CURSOR = "headwater/model/cursor.py"
COMMITTER = "headwater/log/committer.py"
TAIL = "headwater/log/tail.py"
INTENTIONS = "headwater/services/intentions.py"
CONSUMPTION = "headwater/services/consumption.py"
LIFE = "headwater/services/life.py"
APP = "headwater/app.py"
LEAVING = "tests/interfaces/test_leaving.py"
RECEPTION = "headwater/doors/access/reception.py"
TOKENS = "headwater/doors/access/tokens.py"
KEYS = "headwater/doors/access/keys.py"
EDGE_READING = "headwater/doors/edge/reading.py"
HOSTS = "headwater/doors/hosts.py"
FAILING_BATCHES = "tests/doors/queen/test_failing_batches.py"
IDEMPOTENCY = "headwater/model/idempotency.py"
APPLIED = "headwater/stores/tables/applied.py"
JWT = "headwater/model/json_web_token.py"
JWT_DOOR = "headwater/doors/access/json_web_tokens.py"
BROWSER = "headwater/doors/access/browser.py"
PRINCIPAL = "headwater/model/principal.py"
ACCESS_TOKENS = "headwater/services/access_tokens.py"
FILTER_PYTHON = "headwater/filters/python.py"
FILTER_SQL = "headwater/filters/sql.py"
FILTER_DIALECTS = "headwater/filters/dialects.py"
MATCHER = "headwater/services/matching/matcher.py"
FEED = "headwater/services/feed.py"
SUBSCRIPTIONS = "headwater/services/subscriptions.py"
LIVE = "tests/doors/realtime/test_documents.py"
TURNS = "headwater/services/turns.py"
COSTLY = "tests/doors/realtime/test_costly_filters.py"
LIVE_SERVERS = "tests/faults/test_live_servers.py"
REPLICATION = "headwater/services/replication.py"
REPLICA_RULES = "tests/doors/test_replica_rules.py"
PLANS = "tests/stores/test_document_plans.py"
OTHER_LOGS = "tests/doors/realtime/test_places_of_another_log.py"
WHO_ASKS = "tests/doors/realtime/test_filters_of_who_asks.py"
DOCUMENT_RULES = "tests/doors/test_document_rules.py"
ROOMS_RESTORED = "tests/doors/realtime/test_rooms_of_another_store.py"
FORMS_AGREE = "tests/filters/test_forms_agree.py::test_every_awkward_value_is_told_apart_by_all_forms"

CURSORS = "headwater/stores/tables/cursors.py"
IDENTITY = "headwater/stores/tables/identity.py"
SENTINEL = "headwater/housekeeping/sentinel.py"
EDGE_CONNECTION = "headwater/doors/edge/connection.py"
PROXIES = "headwater/doors/proxies.py"
LONG_POLLS = "tests/doors/test_long_polls.py"

LOG_DOOR = "headwater/doors/native/log.py"
LOG_COMMITS = "headwater/doors/native/log_commits.py"
ADMISSION = "headwater/services/admission.py"
LOG_READING = "headwater/services/log_reading.py"
LOG_READER = "headwater/client/log_reader.py"
LOG_WRITER = "headwater/client/log_writer.py"
CLIENT_ACCESS = "headwater/client/access.py"
LOG_READER_TESTS = "tests/client/test_log_reader.py"
LOG_WRITER_TESTS = "tests/client/test_log_writer.py"

JOBS = "headwater/stores/tables/jobs.py"
JOB_RULES = "headwater/model/job.py"
JOB_LANES = "headwater/stores/tables/job_lanes.py"
JOB_DEPENDENTS = "headwater/stores/tables/job_dependents.py"
JOB_SCHEDULES = "headwater/stores/tables/job_schedules.py"
JOB_ANSWERS = "headwater/stores/tables/job_answers.py"
JOB_HANDLERS = "headwater/doors/jobs/handlers.py"
COMMAND_TEMPLATE = "headwater/model/command_template.py"
WORKER_SHELL = "headwater/worker/shell.py"
WORKER_FUNCTION = "headwater/worker/runner_process.py"
WORKER = "headwater/worker/worker.py"
SUPERVISOR = "headwater/worker/supervisor.py"

POWER_CUTS = "tests/faults/test_power_cuts.py::test_a_power_cut_takes_nothing_that_was_answered_and_adds_nothing"
RULES = "tests/faults/test_power_cuts.py::test_every_state_on_the_way_keeps_the_rules_of_the_log"
TWO_STORES = "tests/faults/test_two_stores.py"
WAITING = "tests/faults/test_waiting_pops.py"
REFUSED = "tests/faults/test_refused_commits.py"
REFUSED_SYNC = (
    "tests/faults/test_power_cuts.py::test_a_power_cut_after_the_disk_refused_a_sync_takes_nothing_that_was_answered"
)
BAD_FILES = "tests/faults/test_bad_files.py"
CLOCK = "tests/faults/test_clock_jumps.py::test_jumps_between_operations_lose_no_record_and_no_order"
LEASES = "tests/contracts/test_leases.py"
RETAINED = "tests/contracts/test_retention.py"
RECEIVED = "tests/doors/access/test_reception.py"
FORGED = "tests/doors/access/test_forgeries.py"
TENANTS = "tests/doors/access/test_tenants.py"
MILESTONES = "tests/contracts/test_milestones.py"
READING = "tests/contracts/test_reading.py"

JOBS_CONTRACT = "tests/contracts/test_jobs.py"
JOB_TIES = "tests/contracts/test_job_ties.py"
JOB_KIN = (
    "tests/contracts/test_job_state_machine.py"
    "::test_who_may_still_run_finds_what_it_depends_on_whatever_is_dropped[sqlite]"
)
COMMANDS = "tests/worker/test_commands.py"
FUNCTIONS = "tests/worker/test_functions.py"

SPARK_SOURCE = "headwater/pipeline/source.py"
SPARK_LOOKING = "headwater/pipeline/looking.py"
SPARK_STANDING = "headwater/pipeline/standing.py"
SPARK_DESTINATION = "headwater/pipeline/destination.py"
SPARK_ENCODING = "headwater/pipeline/encoding.py"
SPARK_ADMISSION = "headwater/pipeline/admission.py"
SPARK_PLANNING = "headwater/pipeline/planning.py"
KNOWN_AGAIN = "tests/pipeline/test_identity.py"
NEW_TO_A_CHECKPOINT = (
    "tests/pipeline/test_new_queues.py::test_what_is_new_to_a_checkpoint_is_read_from_its_first_record"
)
TOLD = "test_a_stream_is_told_and_goes_on_as_documented"
ADMITTED = "tests/pipeline/test_admission.py"

BUGS = [
    Bug(
        "barrier-skipped",
        "synchronous=NORMAL, and nobody waits for the disk",
        (
            Edit(
                SHARED_FILE,
                "            synced = self._barrier.wait(callers)\n",
                "            synced: asyncio.Future[None] | None = asyncio.get_running_loop().create_future()\n"
                "            synced.set_result(None)\n",
            ),
        ),
        (POWER_CUTS,),
    ),
    Bug(
        "answer-before-durable",
        "the answer goes out while the disk is still at work",
        (
            Edit(
                COMMITTER,
                "                unsynced.append(submission)\n",
                "                submission.settle(Durability.SYNCED)\n                unsynced.append(submission)\n",
            ),
        ),
        (POWER_CUTS,),
    ),
    Bug(
        "repeated-pop-takes-the-lease",
        "whoever leaves a pop that was repeated with its key gives back what the first one works on",
        (Edit("headwater/stores/tables/repeated_pops.py", "        if kept.answered > 1:", "        if False:"),),
        ("tests/client/test_verbs.py",),
    ),
    Bug(
        "closed-by-two-threads",
        "two threads that close one handle stop its loop under each other",
        (
            Edit(
                "headwater/services/bridge.py",
                "            if not self._life.is_open:\n                return\n            self._life.end()",
                "            self._life.end()",
            ),
            Edit("headwater/services/bridge.py", "        with self._finishing:\n", "        if True:\n"),
        ),
        ("tests/interfaces/test_closing.py",),
    ),
    Bug(
        "closed-under-a-pop",
        "what comes for a loop while its client is closed stays leased",
        (Edit("headwater/services/holdings.py", "        self._end_waits()\n", ""),),
        ("tests/interfaces/test_closing.py",),
    ),
    Bug(
        "affirmed-before-durable",
        "a second call with the same key is answered although the first is not on the disk yet",
        (Edit(WRITER, " or repeated or any(map(_affirms, results))", ""),),
        (POWER_CUTS, "tests/faults/test_affirmed_answers.py"),
    ),
    Bug(
        "damage-hides-its-forerunners",
        "a damaged record fails the pop of the healthy ones before it",
        (
            Edit(
                POPS, "            if found.offsets:\n                return None\n            last", "            last"
            ),
        ),
        ("tests/faults/test_damaged_records.py",),
    ),
    Bug(
        "lost-store-unnoticed",
        "a sync into a file that was deleted meanwhile counts as one",
        (Edit(SHARED_FILE, "            error = replaced\n", "            del replaced\n"),),
        ("tests/faults/test_lost_stores.py",),
    ),
    Bug(
        "waiting-for-a-lost-store",
        "those who wait are not told that the store is no more",
        (Edit(SENTINEL, "            for tell in self._on_loss:\n                tell(error)\n", ""),),
        ("tests/faults/test_lost_stores.py",),
    ),
    Bug(
        "restore-unnoticed",
        "a handle goes on with a store that was given another identity",
        (Edit(IDENTITY, "elif found not in self._known:", "elif not found:"),),
        ("tests/contracts/test_identity.py",),
    ),
    Bug(
        "history-by-place-alone",
        "a segment of another history counts as the same when it lies at the same place",
        (Edit(IDENTITY, "Fingerprint(row[0], _mark(*row))", "Fingerprint(row[0], _mark(*row[:4]))"),),
        ("tests/contracts/test_identity.py",),
    ),
    Bug(
        "no-room-for-deletes",
        "on a full disk the reserve stays where it is",
        (
            Edit(
                STORE,
                "            if not self._reserve.give_up():\n                raise\n            self",
                "            raise\n            self",
            ),
        ),
        ("tests/faults/test_full_disk.py",),
    ),
    Bug(
        "full-disk-fills-the-log",
        "every refused push is told in the log",
        (
            Edit(
                COMMITTER,
                "        if not self.full:\n            self.full = True\n",
                "        if True:\n            self.full = True\n",
            ),
        ),
        ("tests/log/test_committer.py",),
    ),
    Bug(
        "deferred-begin",
        "BEGIN without IMMEDIATE: the lock is asked for in the middle, when nobody waits for it any more",
        (
            Edit(
                WRITE_LOCK,
                'run("BEGIN IMMEDIATE")\n    except apsw.BusyError',
                'run("BEGIN")\n    except apsw.BusyError',
            ),
        ),
        (TWO_STORES,),
    ),
    Bug(
        "ack-without-token",
        "whoever acks is believed, whatever token he shows",
        (
            Edit(
                CURSOR,
                "if token not in (cursor.token, None) or cursor.lease_until is None:",
                "if cursor.lease_until is None:",
            ),
        ),
        (LEASES, TWO_STORES),
    ),
    Bug(
        "ack-of-an-expired-lease",
        "a lease that ran out still counts as long as nobody else took it",
        (Edit(CURSOR, "    if cursor.lease_until <= now:\n", "    if cursor.lease_until < 0:\n"),),
        (LEASES,),
    ),
    Bug(
        "tokens-do-not-rise",
        "the next lease has the token of the last one",
        (
            Edit(
                CURSOR,
                "token=max(cursor.token + 1, now),\n        lease_until=until",
                "token=cursor.token or now,\n        lease_until=until",
            ),
        ),
        (LEASES, CLOCK),
    ),
    Bug(
        "tokens-follow-the-clock",
        "tokens are the time, and fall with it",
        (
            Edit(
                CURSOR,
                "token=max(cursor.token + 1, now),\n        lease_until=until",
                "token=now,\n        lease_until=until",
            ),
        ),
        (CLOCK,),
    ),
    Bug(
        "attempt-not-counted-at-claim",
        "a record that kills its consumer each time never reaches the dead letters",
        (Edit(CURSOR, "attempts=cursor.attempts + 1,", "attempts=max(cursor.attempts, 1),"),),
        ("tests/contracts/test_failures.py", "tests/contracts/test_dead_letters.py"),
    ),
    Bug(
        "catch-up-skipped",
        "the end of a partition is remembered though another process has pushed",
        (
            Edit(
                WRITER,
                "        return [] if version == self._version else self._take_in(version, self._look())\n",
                "        return [] if self._version != -1 else self._take_in(version, self._look())\n",
            ),
        ),
        (TWO_STORES,),
    ),
    Bug(
        "positions-remembered-too-long",
        "a position is believed though another process has moved its group",
        (
            Edit(
                CURSORS,
                '"""Others may have popped and reported."""\n        self.forget()\n',
                '"""Others may have popped and reported."""\n',
            ),
        ),
        (LEASES,),
    ),
    Bug(
        "push-before-positions-are-written",
        "a group that became idle in this commit is not woken by a push of the same commit",
        (
            Edit(
                WRITER,
                "        if pushes or transactions:\n            self._write_waiting()\n",
                "",
            ),
        ),
        (LEASES,),
    ),
    Bug(
        "dropped-segment-remembered",
        "what was read last is delivered from memory though retention has dropped it",
        (Edit(SEGMENTS, "        self._current.pop(partition_id, None)\n", ""),),
        (RETAINED,),
    ),
    Bug(
        "ids-of-others-not-remembered",
        "a transaction id that another process has used is taken for a new one",
        (
            Edit(
                SEGMENTS,
                "            if self._recent_from is not None:\n                self._remember_ids(",
                "            if self._recent_from is not None and lsn < 0:\n                self._remember_ids(",
            ),
        ),
        (TWO_STORES, "tests/contracts/test_deduplication.py"),
    ),
    Bug(
        "released-burns-an-attempt",
        "giving a record back unseen counts against it",
        (Edit(CURSOR, "attempts=cursor.attempts - 1) if cursor.failed", "attempts=cursor.attempts) if cursor.failed"),),
        ("tests/model/test_cursor.py", "tests/contracts/test_failures.py"),
    ),
    Bug(
        "retention-drops-the-unread",
        "completed retention does not ask how far the slowest group is",
        (Edit(RETENTION, "return slowest if slowest is not None and cursors == groups else 0", "return 2**62"),),
        ("tests/contracts/test_retention.py",),
    ),
    Bug(
        "urgent-for-everybody",
        "groups meet all partitions of a priority, also those that are for another group alone",
        (
            Edit(
                "headwater/stores/sqlite/sql/cursors.sql",
                "WHERE g.id = ? AND p.reader IN ('', g.name)\n",
                "WHERE g.id = ?\n",
            ),
        ),
        ("tests/contracts/test_dead_letters.py",),
    ),
    Bug(
        "waiting-for-those-who-came",
        "what waits is not counted for a group that has not been in a partition",
        (Edit("headwater/stores/sqlite/sql/segments.sql", "FROM hw_groups g LEFT JOIN", "FROM hw_groups g JOIN"),),
        ("tests/contracts/test_status.py",),
    ),
    Bug(
        "room-counted-before-the-seek",
        "what waited is not counted anew when a group is moved back",
        (Edit("headwater/stores/tables/reports.py", "        self._catalog.rereads += 1\n", ""),),
        ("tests/contracts/test_status.py",),
    ),
    Bug(
        "requeued-for-nobody",
        "what was requeued for a group stays when the group is deleted",
        (
            Edit(
                "headwater/stores/tables/groups.py",
                "            self._drop_requeued(operation, now)",
                "            pass",
            ),
        ),
        ("tests/contracts/test_dead_letters.py",),
    ),
    Bug(
        "lsn-reused",
        "when the newest segments are dropped, their LSNs are given out again",
        (Edit(SEGMENTS, '        self._connection.run(self._sql.raise_meta, ("last_lsn", self.last_lsn))\n', ""),),
        (TWO_STORES, "tests/contracts/test_retention.py"),
    ),
    Bug(
        "tail-jumps-over-others",
        "after an own commit the tail stands behind it, and a commit of another process in between is never told",
        (
            Edit(
                TAIL,
                "if commit.touched[0].lsn == self.position + 1 and self._looking is None:",
                "if self._looking is None:",
            ),
        ),
        (TWO_STORES,),
    ),
    Bug(
        "tail-seen-before-told",
        "the position moves before the followers were told, and those that come with it are left out",
        (
            Edit(
                TAIL,
                "        fresh = [touch for touch in touched if touch.lsn > self.position]\n",
                "        self.position = max(self.position, touched[0].lsn)\n"
                "        fresh = [touch for touch in touched if touch.lsn > self.position]\n",
            ),
        ),
        (TWO_STORES, WAITING),
    ),
    Bug(
        "deadline-leaves-the-waiter",
        "the deadline answers, and the waiter stays in the registry for a delivery to answer again",
        (
            Edit(
                INTENTIONS,
                "is_open = self._leave(number, intention.key) and not intention.answer.done()",
                "is_open = not intention.answer.done()",
            ),
        ),
        (WAITING,),
    ),
    Bug(
        "deadline-and-delivery-both",
        "a delivery after the deadline goes to an answer that was given already",
        (
            Edit(
                INTENTIONS,
                "        if self._leave(number, intention.key) and not intention.answer.done():\n"
                "            self.served += 1\n",
                "        self._leave(number, intention.key)\n"
                "        if intention.answer.done():\n"
                "            return\n"
                "        if True:\n"
                "            self.served += 1\n",
            ),
        ),
        (WAITING,),
    ),
    Bug(
        "joined-key",
        "selections are told apart by their names joined to one text",
        (
            Edit(
                "headwater/services/pop_keys.py",
                "    task: str\n    group: str\n",
                "    task: str\n    group: str\n\n"
                "    def __eq__(self, other: object) -> bool:\n"
                '        return isinstance(other, tuple) and "/".join(self) == "/".join(other)\n\n'
                "    def __hash__(self) -> int:\n"
                '        return hash("/".join(self))\n',
            ),
        ),
        (WAITING,),
    ),
    Bug(
        "all-waiters-removed",
        "when one waiter of a key was served, all of them are struck off",
        (
            Edit(
                INTENTIONS,
                "        if line.waiting and (served == len(chosen) or line.again):\n",
                "        if served:\n"
                "            line.waiting.clear()\n"
                "        if line.waiting and (served == len(chosen) or line.again):\n",
            ),
        ),
        (WAITING,),
    ),
    Bug(
        "lease-of-the-vanished-kept",
        "records leased for somebody who left are not given back",
        (
            Edit(
                INTENTIONS,
                "        for giving_back in releases(popped, operation):\n",
                "        for giving_back in releases(popped, operation)[:0]:\n",
            ),
        ),
        (WAITING,),
    ),
    Bug(
        "checksum-not-verified",
        "a segment is delivered though its sum does not match",
        (
            Edit(
                SEGMENTS,
                "    if type(kept) is not bytes or type(kind) is not int or crc32(kept) != checksum:\n",
                "    if checksum < 0:\n",
            ),
        ),
        (BAD_FILES,),
    ),
    Bug(
        "neighbours-fail-together",
        "one refused operation takes its whole commit with it",
        (
            Edit(
                WRITER,
                "        except HeadwaterError as error:\n            return error\n\n    def _tra",
                "        except LookupError as error:\n            return error\n\n    def _tra",
            ),
        ),
        (REFUSED, "tests/contracts/test_leases.py"),
    ),
    Bug(
        "idempotency-key-ignored",
        "the same request with the same key is done twice",
        (
            Edit(
                WRITER,
                "            if operation.key:\n                first = ",
                "            if operation.key == 0:\n                first = ",
            ),
        ),
        ("tests/contracts/test_idempotency.py",),
    ),
    Bug(
        "idle-groups-not-woken",
        "a push does not tell the groups that were caught up",
        (
            Edit(
                SEGMENTS,
                "            self._connection.executemany(self._sql.wake_idle_cursors, self._waking)\n",
                "",
            ),
        ),
        (RULES, "tests/contracts/test_pop.py"),
    ),
    Bug(
        "undone-segments-remembered",
        "after a rollback the records of an LSN are still those that never were",
        (
            Edit(
                SEGMENTS,
                "        self._opened.clear()\n        self._opened_bytes = 0\n        self.last_lsn = Lsn(0)\n",
                "        self.last_lsn = Lsn(0)\n",
            ),
        ),
        (REFUSED,),
    ),
    Bug(
        "nothing-forgotten-after-a-rollback",
        "what a refused commit had in mind is taken for true",
        (Edit(STORE, "            self._writer.forget()\n            raise\n", "            raise\n"),),
        (REFUSED,),
    ),
    Bug(
        "groups-believe-an-undone-meeting",
        "after a rollback a group is taken to have met partitions that it has no cursor for",
        (
            Edit(
                CATALOG,
                'it meets its partitions again."""\n        self.generation += 1\n',
                'it meets its partitions again."""\n',
            ),
            Edit(POPS, "        self._discovered.clear()\n", ""),
        ),
        (REFUSED,),
    ),
    Bug(
        "log-not-written-once-more",
        "after a refused sync the next one is believed, though the system did not try the lost pages again",
        (Edit(SHARED_FILE, "                    self._barrier.rewrite()\n", "                    pass\n"),),
        (REFUSED_SYNC,),
    ),
    Bug(
        "refused-sync-ignored",
        "the answer is success though the disk has refused",
        (
            Edit(
                COMMITTER,
                "            if error is not None:\n                self._lose(flight.submissions, error)\n"
                "                return\n",
                "",
            ),
        ),
        (REFUSED_SYNC,),
    ),
    Bug(
        "lost-race-behind-newer",
        "what a lost race took back goes behind what came later",
        (
            Edit(
                COMMITTER,
                "            self._backlog.returned = lost + self._backlog.returned\n",
                "            self._backlog.pending += lost\n",
            ),
        ),
        ("tests/log/test_flights.py",),
    ),
    Bug(
        "one-breaks-a-commit-for-all",
        "an operation that breaks its commit takes its neighbours with it",
        (Edit(COMMITTER, "if len(batch) > 1 and is_of_one(error):", "if len(batch) > 5_000:"),),
        ("tests/log/test_committer.py", "tests/contracts/test_upkeep.py"),
    ),
    Bug(
        "looked-before-it-landed",
        "whoever only looked is answered from what somebody else may still take back",
        (Edit(COMMITTER, "        if self._answers_wait:\n", "        if self._answers_wait and commit.wrote:\n"),),
        ("tests/log/test_flights.py",),
    ),
    Bug(
        "told-before-it-landed",
        "the tail hears of a commit that somebody else may still take back",
        (Edit(COMMITTER, "            self._untold.append(commit)\n", "            self._on_commit(commit)\n"),),
        ("tests/log/test_flights.py",),
    ),
    Bug(
        "log-that-started-over-unseen",
        "frames of a log that has started over are looked for where the old one ended",
        (
            Edit(
                "headwater/stores/sqlite/frames.py",
                "            self._salt, self._seen = salt, 0\n",
                "            self._salt = salt\n",
            ),
        ),
        ("tests/stores/test_frames.py",),
    ),
    Bug(
        "expired-lease-not-written-down",
        "what a lease that ran out has buried is forgotten when the rest of the pop fails",
        (Edit(POPS, "            self._cursors.write(group, partition.id, cursor)\n        found", "        found"),),
        (BAD_FILES,),
    ),
    Bug(
        "system-errors-untranslated",
        "what the operating system refuses reaches callers as it is",
        (
            Edit(
                CONNECTION,
                "    except OSError as error:\n        if error.errno in",
                "    except LookupError as error:\n        if error.errno in",
            ),
        ),
        (BAD_FILES,),
    ),
    # ── access ──
    Bug(
        "revocation-waits",
        "a token that is known stays good until it is looked up again",
        (Edit(RECEPTION, "        if known.version != self._version(verifier):\n            return False\n", ""),),
        (RECEIVED,),
    ),
    Bug(
        "revocation-unheard",
        "a server on which nobody waits does not follow the log, and never hears of what others revoke",
        (Edit(TOKENS, "            await self._tail.listen()\n", ""),),
        (RECEIVED,),
    ),
    Bug(
        "version-read-too-late",
        "what was revoked while a token was looked up is taken for known",
        (
            Edit(RECEPTION, "        version = self._version(verifier)\n", ""),
            Edit(
                RECEPTION,
                "        self._remember(name, verified, version)\n",
                "        self._remember(name, verified, self._version(verifier))\n",
            ),
        ),
        (RECEIVED,),
    ),
    Bug(
        "revoked-while-waiting",
        "a pop that waits gets messages although its token was revoked meanwhile",
        (Edit(RECEPTION, "if response.done or not (wait.begun or response.undelivered):", "if True:"),),
        (RECEIVED,),
    ),
    Bug(
        "good-credentials-refused-for-guesses",
        "after too many wrong credentials from an address, good ones are refused too",
        (
            Edit(
                RECEPTION,
                "        try:\n            return await self._verify(",
                "        if known is None:\n            self._count_guess(address_key(request.client))\n"
                "        try:\n            return await self._verify(",
            ),
        ),
        ("tests/doors/access/test_reception.py",),
    ),
    Bug(
        "token-kept-in-the-clear",
        "the store keeps the text of tokens",
        (Edit(ACCESS_TOKENS, "            digest=digest_of(text),\n", "            digest=text,\n"),),
        ("tests/cli/test_tokens.py",),
    ),
    Bug(
        "algorithm-by-header",
        "a token may be signed in any way that there is a key for",
        (Edit(JWT_DOOR, "for algorithm in algorithms}", "for algorithm in Algorithm}"),),
        (FORGED,),
    ),
    Bug(
        "any-key-for-any-name",
        "the name of a key in a token does not count",
        (Edit(KEYS, 'if name is None or key.name in ("", name)]', "]"),),
        (FORGED,),
    ),
    Bug(
        "audience-where-none-is-set",
        "a token for somebody else is taken where no audience is set, or the token names none",
        (Edit(JWT, "        return not audience\n", "        return True\n"),),
        (FORGED,),
    ),
    Bug(
        "claims-twice",
        "of two claims of one name the last one counts",
        (Edit(JWT, "    if len(members) != len(pairs):\n", "    if False:\n"),),
        (FORGED,),
    ),
    Bug(
        "pattern-forgotten",
        "a token that names some queues is good for all",
        (Edit(PRINCIPAL, "    if not principal.may_use(queue):\n", "    if False:\n"),),
        (TENANTS,),
    ),
    Bug(
        "keys-shared-over-a-tenant",
        "an idempotency key of one token is answered with what another token did",
        (Edit(IDEMPOTENCY, "    if not key or (not principal.subject", "    if key or (not principal.subject"),),
        (TENANTS,),
    ),
    Bug(
        "another-request-under-a-key",
        "a repeated idempotency key hides that the request was another one",
        (Edit(APPLIED, " or print_before not in (None, _fingerprint(operation)):", ":"),),
        ("tests/contracts/test_idempotency.py",),
    ),
    Bug(
        "host-with-a-user",
        "a Host header is read up to its colon, so that localhost:80@evil.example is localhost",
        (Edit(HOSTS, "    found = _authority.fullmatch(header)\n", "    found = _authority.match(header)\n"),),
        ("tests/doors/test_smuggling.py",),
    ),
    Bug(
        "any-transfer-encoding",
        "a body may come in codings that others in between do not read",
        (Edit(EDGE_READING, 'if coding.lower() != "chunked":', 'if "chunked" not in coding.lower():'),),
        ("tests/doors/test_smuggling.py",),
    ),
    Bug(
        "images-let-through",
        "a foreign page takes messages with an image whose address is a pop",
        (Edit(BROWSER, 'site in ("none", "same-origin") or (', 'request.method == "GET" or ('),),
        ("tests/doors/access/test_browser.py",),
    ),
    Bug(
        "step-taken-twice",
        "a step of named work is refused only when a later one was taken: a micro-batch is pushed again",
        (Edit("headwater/stores/tables/milestones.py", "row[0] >= operation.number:", "row[0] > operation.number:"),),
        (MILESTONES,),
    ),
    Bug(
        "silent-drop",
        "retention does not note what it took: readers by LSN pass the gap without a word",
        (Edit(SEGMENTS, "        self._note_drop(partition_id, offset)\n", ""),),
        (READING,),
    ),
    Bug(
        "job-token-forgotten",
        "a late report of an earlier attempt counts for the one that runs now",
        (
            Edit(
                JOBS,
                "        held = {(row.number, row.token): row for row in rows}\n        states",
                "        held = {(row.number, said.token): row for row in rows for said in operation.reports}\n"
                "        states",
            ),
        ),
        (JOBS_CONTRACT,),
    ),
    Bug(
        "attempt-not-counted-on-rescue",
        "a job that kills its worker comes back for ever",
        (
            Edit(
                JOBS,
                "            outcome, error = JobOutcome.FAILED, reason\n",
                "            outcome, error = JobOutcome.RELEASED, reason\n",
            ),
        ),
        (JOBS_CONTRACT,),
    ),
    Bug(
        "released-job-loses-an-attempt",
        "a job that was only claimed ahead has an attempt less",
        (
            Edit(
                JOB_RULES,
                "        return Verdict(JobState.PENDING, held.attempts - 1)\n",
                "        return Verdict(JobState.PENDING, held.attempts)\n",
            ),
        ),
        (JOBS_CONTRACT,),
    ),
    Bug(
        "dead-one-attempt-early",
        "the last retry is never made",
        (Edit(JOB_RULES, "held.attempts >= held.attempts_max:", "held.attempts + 1 >= held.attempts_max:"),),
        ("tests/model/test_job.py",),
    ),
    Bug(
        "limit-never-freed",
        "the end of a job does not make room in its lane",
        (
            Edit(
                JOBS,
                "        self._lanes.left((row.lane for row in rows), now)\n        ran",
                "        ran",
            ),
        ),
        (JOB_TIES,),
    ),
    Bug(
        "dependents-of-the-dead-go-on",
        "a job runs although what it depends on has died",
        (
            Edit(
                JOB_DEPENDENTS,
                "            if settled or ended[needs] is JobState.COMPLETED:\n",
                "            if settled or ended[needs] is not JobState.CANCELLED:\n",
            ),
        ),
        (JOB_TIES,),
    ),
    Bug(
        "schedule-fired-twice",
        "a schedule that enqueued stays due",
        (Edit(JOB_SCHEDULES, "            values = (schedule.after(now), now,", "            values = (now, now,"),),
        (JOB_TIES,),
    ),
    Bug(
        "shell-killed-alone",
        "a timeout ends the shell and leaves its children",
        (
            Edit(
                WORKER_SHELL,
                "        kill_group(self.process, signal.SIGKILL)\n        _, status",
                "        _, status",
            ),
        ),
        (COMMANDS,),
    ),
    Bug(
        "service-ended-by-a-job",
        "a signal that a job sends its worker ends the service",
        (
            Edit(
                SUPERVISOR,
                "            if code == 0 or (code == TOLD_BY_SIGNAL and self._signals):\n",
                "            if code in (0, TOLD_BY_SIGNAL):\n",
            ),
        ),
        ("tests/scenarios/test_job_signals.py",),
    ),
    Bug(
        "claims-before-it-is-loaded",
        "a worker that was started wrongly runs commands before it notices",
        (Edit(WORKER, " or self.functions.is_loading:\n            return 0", ":\n            return 0"),),
        ("tests/worker/test_wrong_starts.py",),
    ),
    Bug(
        "key-of-one-queue",
        "jobs of one concurrency key run at once when they are in two queues",
        (Edit(JOB_LANES, " if job.concurrency_key else NO_LANE\n        row", " and NO_LANE\n        row"),),
        ("tests/stores/test_job_lanes.py",),
    ),
    Bug(
        "ids-tell-of-others",
        "an id that is taken in a queue that is not theirs is refused",
        (Edit(JOB_HANDLERS, '        id=own("job", job.id),\n', "        id=job.id,\n"),),
        ("tests/doors/test_job_scopes.py",),
    ),
    Bug(
        "neighbours-blamed",
        "a process that dies takes the attempts of jobs that it had not begun",
        (
            Edit(WORKER_FUNCTION, " if (call.job.number, call.job.token) in started]", " if call.job]"),
            Edit(WORKER_FUNCTION, " if (call.job.number, call.job.token) not in started]", " if not call.job]"),
            Edit(WORKER_FUNCTION, "alone=len(ran) == 1 and", "alone=len(ran) > 0 and"),
        ),
        (FUNCTIONS,),
    ),
    Bug(
        "done-forgotten",
        "what was done is told late, and a process that dies takes it along: it is done again, as the same attempt",
        (
            Edit(WORKER_FUNCTION, "FrameReader(), process.slate.kept())", "FrameReader(), b'')"),
            Edit(WORKER_FUNCTION, " if (call.job.number, call.job.token) in started]", " if call.job.number in begun]"),
            Edit(
                WORKER_FUNCTION,
                " if (call.job.number, call.job.token) not in started]",
                " if call.job.number not in begun]",
            ),
        ),
        ("tests/worker/test_counts.py",),
    ),
    Bug(
        "cancelled-unheard",
        "an async call that is cancelled before its first step is never told of, and its worker waits for it for ever",
        (Edit("headwater/worker/async_calls.py", "        if error is not None:\n", "        if False:\n"),),
        ("tests/worker/test_loops.py",),
    ),
    Bug(
        "neighbours-charged",
        "whoever shares an event loop with a function that ends its process loses an attempt",
        (
            Edit(
                "headwater/worker/call_reports.py",
                "    if call.stopped or call.job.attempts_max == 1:\n",
                "    if True:\n",
            ),
        ),
        ("tests/worker/test_loops.py",),
    ),
    Bug(
        "nonsense-swallows",
        "nonsense on a runner's pipe takes the good messages behind it along",
        (
            Edit(
                "headwater/worker/frames.py",
                "        found = self._rest.find(MARK, start)\n",
                "        found = -1\n",
            ),
        ),
        ("tests/worker/test_calls.py",),
    ),
    Bug(
        "hoarded-limit",
        "a worker is given all places of a limit, for jobs that only wait in it",
        (Edit("headwater/stores/tables/job_shares.py", "1 if alone else self._capacity.jobs", "lane.concurrency"),),
        ("tests/contracts/test_job_shares.py",),
    ),
    Bug(
        "place-kept-by-nobody",
        "a place of a limit that the key has no use for which was woken for it is offered to no other",
        (Edit(JOB_LANES, "        if places > 0:\n", "        if places > 0 and not parent:\n"),),
        ("tests/contracts/test_job_ties.py",),
    ),
    Bug(
        "keyless-put-off",
        "who has no key puts messages for later off for who has",
        (
            Edit(
                "headwater/stores/tables/delayed.py",
                "            except EncryptionKeyMissing:\n                raise\n            except HeadwaterError",
                "            except HeadwaterError",
            ),
        ),
        ("tests/contracts/test_codec.py",),
    ),
    Bug(
        "schedule-begun-anew",
        "a schedule that is declared again begins its interval anew",
        (Edit(JOB_SCHEDULES, "    if known is None:\n", "    if known is None or known.next_at is not None:\n"),),
        ("tests/contracts/test_job_schedules.py",),
    ),
    Bug(
        "limit-of-a-queue",
        "each queue and type keeps the limit that its own first job of a concurrency key came with",
        (
            Edit(
                "headwater/stores/tables/job_lanes.py",
                "if self._connection.rows(self._sql.set_lane_concurrency, (limit, row[0]), Number):",
                "if self._connection.rows(self._sql.set_lane_concurrency, (limit, row[0]), Number) and not row:",
            ),
        ),
        ("tests/stores/test_job_lanes.py",),
    ),
    Bug(
        "copies-harm-originals",
        "a worker on a copy of a store kills what the workers of the original run",
        (
            Edit(
                "headwater/stores/job_starts.py",
                "if marks <= _environment(process)}",
                "if marks & _environment(process)}",
            ),
        ),
        ("tests/scenarios/test_job_workers.py",),
    ),
    Bug(
        "marks-in-a-ring",
        "the mark of a job that runs for long is written over by those of later ones, and it may be started again",
        (
            Edit(
                "headwater/stores/job_starts.py",
                "self._free.popleft()",
                "self._free.rotate(-1) or self._free[-1]",
            ),
            Edit("headwater/stores/job_starts.py", "            self._free.append(slot)", "            pass"),
        ),
        ("tests/worker/test_counts.py",),
    ),
    Bug(
        "marks-let-go-with-the-report",
        "a job's mark may be written over while its report is on its way to the store",
        (
            Edit(
                "headwater/worker/settlement.py",
                "        operation = Settle(database=self._database, worker=self._worker, reports=reports)\n",
                "        operation = Settle(database=self._database, worker=self._worker, reports=reports)\n"
                "        for report in reports:\n"
                "            self._starts.let_go(report.number, report.token)\n",
            ),
        ),
        ("tests/worker/test_counts.py",),
    ),
    Bug(
        "lost-once-known-for-ever",
        "of a worker that is lost a second time it is believed what it had started the first time",
        (Edit("headwater/stores/tables/job_workers.py", "        self._left.clear()\n", ""),),
        ("tests/worker/test_counts.py",),
    ),
    Bug(
        "fetched-is-charged",
        "what a killed worker had only fetched counts as an attempt",
        (Edit(JOBS, "            elif started is not None and (row", "            elif started is None and (row"),),
        ("tests/worker/test_counts.py",),
    ),
    Bug(
        "clock-ends-leases",
        "a clock that is set forward ends the leases of workers that are well",
        (Edit("headwater/stores/tables/job_workers.py", "0 < left <= LEASE_MAX", "left > LEASE_MAX"),),
        ("tests/faults/test_jobs.py::test_a_clock_that_is_set_takes_no_job_from_a_worker_that_is_well",),
    ),
    Bug(
        "type-looked-up",
        "a job's type that no function is registered under is looked up in the modules that the worker imported",
        (
            Edit(
                "headwater/worker/worker_options.py",
                "functions=functions,",
                "functions=None,",
            ),
            Edit(
                "headwater/worker/functions.py",
                "        elif job.type not in self.known:\n",
                "        elif not job.type:\n",
            ),
            Edit(
                "headwater/worker/plain_calls.py",
                "        function = self._ends.known.get(run.about.type)\n",
                "        function = self._ends.known.get(run.about.type)\n"
                "        if function is None and ':' in run.about.type:\n"
                "            module, _, path = run.about.type.partition(':')\n"
                "            found = sys.modules.get(module)\n"
                "            for part in path.split('.'):\n"
                "                found = getattr(found, part, None)\n"
                "            if callable(found):\n"
                "                some = next(iter(self._ends.known.values()))\n"
                "                function = JobFunction(some.app, found, NewJob(type='x'))\n",
            ),
            Edit(
                "headwater/worker/plain_calls.py",
                "from headwater.model.job import",
                "import sys\nfrom headwater.log.job_operations import NewJob\nfrom headwater.model.job import",
            ),
        ),
        ("tests/worker/test_type_names.py",),
    ),
    Bug(
        "imports-allowed",
        "a module's functions that it has only imported are allowed with it",
        (Edit("headwater/worker/loading.py", "if one.function.__module__ == module.__name__}", "if one}"),),
        ("tests/worker/test_type_names.py",),
    ),
    Bug(
        "option-smuggled",
        "a parameter of an allowed command is taken for an option",
        (Edit(COMMAND_TEMPLATE, 'filled.startswith("-")', "False"),),
        ("tests/model/test_command_template.py", "tests/doors/test_jobs.py"),
    ),
    Bug(
        "given-time-moved",
        "a job that was to run at noon runs when the clock is set",
        (Edit("headwater/stores/sqlite/sql/jobs.sql", " AND run_at IS NOT work ->> '$.run_at'", ""),),
        (
            "tests/faults/test_jobs.py::test_a_time_that_was_given_stays_when_the_clock_is_set_and_a_delay_moves_with_it",
        ),
    ),
    Bug(
        "commands-over-http",
        "whoever may add functions may run any command",
        (
            Edit(
                JOB_HANDLERS,
                "    if job.type == SHELL or job.command or job.argv or job.env or job.cwd:\n",
                "    if job.env or job.cwd:\n",
            ),
        ),
        ("tests/doors/test_jobs.py",),
    ),
    Bug(
        "environment-of-a-schedule-is-answered",
        "whoever may look at schedules reads the operator's passwords",
        (
            Edit(
                JOB_ANSWERS,
                "    template = msgspec.structs.replace(template, env=hidden_values(template.env))\n",
                "",
            ),
        ),
        ("tests/doors/test_job_secrets.py",),
    ),
    Bug(
        "deadline-races-an-ack-on-the-way",
        "the deadline of a poll with autoAck answers while a pop for it is under way; what that pop gets is lost",
        (
            Edit(
                INTENTIONS,
                "intention.is_asked_for = intention.operation.auto_ack\n",
                "intention.is_asked_for = False\n",
            ),
        ),
        (LONG_POLLS,),
    ),
    Bug(
        "spare-partitions-kept",
        "a partition that a pop found for others is leased again after a pop by name took it",
        (Edit(POPS, "        self._spare.pop(group.id, None)\n", ""),),
        ("tests/contracts/test_leases.py",),
    ),
    Bug(
        "gone-while-parked",
        "a client that hangs up while its poll is parked is waited for",
        (
            Edit(
                EDGE_CONNECTION,
                "if self._lingering or self._parked or not self._is_busy()",
                "if self._lingering or not self._is_busy()",
            ),
        ),
        ("tests/doors/test_parking.py",),
    ),
    Bug(
        "untaken-answer-forgotten",
        "an answer that a client does not take is not told to whoever made it",
        (Edit(EDGE_CONNECTION, "        if not is_taken:\n            not_delivered(response)\n", ""),),
        ("tests/doors/test_parking.py",),
    ),
    Bug(
        "stream-gate-burns-attempts",
        "a stream that lets its lease run out loses what it held back to the dead letters",
        (
            Edit(
                CURSORS,
                "        if group.name.startswith(STREAM_GROUP_PREFIX):\n"
                "            return rules.take_away(cursor, now), 0\n",
                "",
            ),
        ),
        ("tests/contracts/test_streams.py",),
    ),
    Bug(
        "forwarded-by-anybody",
        "X-Forwarded-For is believed whoever sent it",
        (
            Edit(
                PROXIES,
                'if "x-forwarded-for" in request.headers and _is_among(request.client, networks):',
                'if "x-forwarded-for" in request.headers:',
            ),
        ),
        ("tests/doors/test_operation.py",),
    ),
    Bug(
        "log-of-other-queues",
        "a reader through a server gets every queue that it names, whatever its token covers",
        (Edit(LOG_DOOR, "[queue for queue in queues if request.principal.may_use(queue)]", "list(queues)"),),
        (LOG_READER_TESTS,),
    ),
    Bug(
        "log-numbers-of-others",
        "a reader through a server is told the numbers of everybody's queues, and of their drops",
        (
            Edit(
                LOG_DOOR,
                "return {queue: number for queue, number in numbers.items() if principal.may_use(queue)}",
                "return numbers",
            ),
        ),
        (LOG_READER_TESTS,),
    ),
    Bug(
        "look-skips-what-it-did-not-see",
        "a look whose time is over says that it came to the end, so what comes next is never read",
        (
            Edit(
                LOG_READING,
                "            if after < end and self._is_over():\n                return found, after\n",
                "            if after < end and self._is_over():\n                return found, through\n",
            ),
        ),
        (LOG_READER_TESTS,),
    ),
    Bug(
        "scan-goes-on-in-another-store",
        "a scan reads on when another store is served at the same address",
        (Edit(LOG_READER, "        if identity != self._identity:\n", "        if not identity:\n"),),
        (LOG_READER_TESTS,),
    ),
    Bug(
        "remote-commit-without-its-step",
        "a commit through a server forgets the step, so a micro-batch that runs again is pushed again",
        (Edit(LOG_WRITER, '"step": to_wire(steps[0]) if steps else None,', '"step": None,'),),
        (LOG_WRITER_TESTS,),
    ),
    Bug(
        "half-an-upload-committed",
        "an upload that lost some of its parts is committed as it is",
        (Edit(LOG_COMMITS, "    if len(parts) != count:\n", "    if not parts:\n"),),
        (LOG_WRITER_TESTS,),
    ),
    Bug(
        "upload-trusted-for-its-queues",
        "who commits an upload is not held to the queues of its token",
        (
            Edit(
                LOG_COMMITS,
                "    for push in pushes:\n        _check_lane(request, push)\n    return pushes\n",
                "    return pushes\n",
            ),
        ),
        (LOG_WRITER_TESTS,),
    ),
    Bug(
        "load-hides-the-files-of-others",
        "what one token says is loaded counts for everybody, so that it can hide the files of others",
        (Edit(LOG_COMMITS, "source = scoped_name(request.principal, load.source)", "source = load.source"),),
        (LOG_WRITER_TESTS,),
    ),
    Bug(
        "load-believes-its-positions",
        "positions that fall, or that nothing covers, are taken, and records come twice",
        (Edit(ADMISSION, "    check_positions(load.positions, load.covers, len(load.records))\n", ""),),
        (LOG_WRITER_TESTS,),
    ),
    Bug(
        "token-in-what-is-shown",
        "a token is in the text of the options, which plans and errors may show",
        (Edit(CLIENT_ACCESS, '"token": "***" if self.token else ""', '"token": self.token'),),
        (LOG_READER_TESTS,),
    ),
    Bug(
        "interrupt-is-a-failure",
        "Ctrl-C, exit or a cancel counts as a failure of the message that was worked on",
        (
            Edit(
                CONSUMPTION,
                "    if isinstance(error, Exception) and not isinstance(error, Closed):\n",
                "    if not isinstance(error, Closed):\n",
            ),
        ),
        (LEAVING,),
    ),
    Bug(
        "bare-loop-acks",
        "a bare loop that is left takes its message for done",
        (
            Edit(
                CONSUMPTION,
                "        await self._report(self._reports(Outcome.RELEASED), asyncio.CancelledError())\n",
                "        await self._report(self._reports(Outcome.COMPLETED), asyncio.CancelledError())\n",
            ),
        ),
        (LEAVING,),
    ),
    Bug(
        "closed-while-held",
        "a store closes and leaves what its consumers hold to the lease's end",
        (Edit(APP, "        await self.queues_service.holdings.close()\n", ""),),
        (LEAVING,),
    ),
    Bug(
        "reported-twice",
        "a message that was reported by hand is reported again by the loop",
        (Edit(CONSUMPTION, "if not batch.token or message.is_reported or (", "if not batch.token or ("),),
        ("tests/services/test_consumption.py",),
    ),
    Bug(
        "fork-unnoticed",
        "what was opened before a fork is used after it",
        (
            Edit(
                LIFE,
                "        if self.is_open:\n            return\n        self._origin.check(self._name, self.line)\n",
                "        if self._state is _State.OPEN:\n            return\n",
            ),
        ),
        ("tests/interfaces/test_opening.py",),
    ),
    Bug(
        "snapshot-of-the-plan",
        "a table is what there is when a query is planned, not when it was loaded",
        (
            Edit(
                SPARK_SOURCE,
                "self._snapshot or take_snapshot(options)",
                "take_snapshot(options)",
            ),
        ),
        (f"{KNOWN_AGAIN}::test_a_source_keeps_what_load_has_found",),
    ),
    Bug(
        "filters-kept-by-the-reader",
        "the reader takes filters, which Spark leaves in the plan of all other queries over the table",
        (
            Edit(
                SPARK_SOURCE,
                "        self._snapshot = snapshot\n",
                "        self._snapshot = snapshot\n\n"
                "    def pushFilters(self, filters):\n"
                "        for condition in filters:\n"
                '            if condition.attribute == ("partition",) and hasattr(condition, "value"):\n'
                "                wanted = frozenset({condition.value})\n"
                "                self._options = msgspec.structs.replace(self._options, partitions=wanted)\n"
                "            else:\n"
                "                yield condition\n",
            ),
        ),
        ("tests/pipeline/test_snapshot.py::test_a_condition_of_one_query_stays_with_it",),
    ),
    Bug(
        "store-known-by-its-path",
        "a stream goes on in whatever store is at the path, as long as its log is long enough",
        (Edit(SPARK_STANDING, 'if store in ("", here.store):', 'if store in ("", here.store) or here.store:'),),
        (f"{KNOWN_AGAIN}::test_what_changed_since_an_offset_is_found", f"{KNOWN_AGAIN}::{TOLD}"),
    ),
    Bug(
        "log-known-by-its-length",
        "a store that was put back from a copy and written to since passes for the one that was read",
        (Edit(SPARK_STANDING, "if remembered is False and", "if remembered is False and offset.last > here.last and"),),
        (f"{KNOWN_AGAIN}::{TOLD}",),
    ),
    Bug(
        "queue-known-by-its-name",
        "a queue that was deleted and made again passes for the one that was read",
        (Edit(SPARK_STANDING, "if here.queues.get(name) != number)", "if name not in here.queues)"),),
        (f"{KNOWN_AGAIN}::{TOLD}",),
    ),
    Bug(
        "one-queue-takes-all-with-it",
        "of a table or a micro-batch nothing is read when one of its queues was deleted",
        (Edit(SPARK_LOOKING, "queues=same if isinstance(change, DataLost) else {})", "queues={})"),),
        (f"{KNOWN_AGAIN}::test_a_table_of_two_queues_has_what_is_left_of_it",),
    ),
    Bug(
        "loss-without-a-word",
        "what is gone is passed over in silence where it may be",
        (
            Edit(
                SPARK_LOOKING, '        log.warning("%s; %s, as failOnDataLoss says", change, so)\n', "        return\n"
            ),
        ),
        (f"{KNOWN_AGAIN}::test_a_table_is_never_read_from_something_else", f"{KNOWN_AGAIN}::{TOLD}"),
    ),
    Bug(
        "new-beginning-not-kept",
        "a stream that goes on after a loss with nothing new begins anew with every trigger",
        (
            Edit(
                SPARK_SOURCE,
                "                return look.mark(begin, here)\n",
                "                return None\n",
            ),
        ),
        (f"{KNOWN_AGAIN}::{TOLD}",),
    ),
    Bug(
        "loss-of-others-told",
        "a read of some partitions stops when retention takes records of others",
        (
            Edit(
                SPARK_LOOKING,
                "begin.drops, self._database, names, partitions or ()",
                "begin.drops, self._database, names, ()",
            ),
        ),
        ("tests/pipeline/test_losses.py::test_what_went_of_other_partitions_is_no_loss",),
    ),
    Bug(
        "new-queue-skipped",
        "a queue that is new to a checkpoint is read behind the checkpoint's LSN",
        (Edit(SPARK_SOURCE, "begin = look.take_in(resumed, wanted)", "begin = resumed"),),
        (NEW_TO_A_CHECKPOINT,),
    ),
    Bug(
        "new-queue-takes-all-back",
        "when a queue is new to a checkpoint all others are read again with it",
        (Edit(SPARK_LOOKING, "lsn=Lsn(0), positions=read, through=offset.last)", "lsn=Lsn(0), positions={})"),),
        (NEW_TO_A_CHECKPOINT,),
    ),
    Bug(
        "new-partition-skipped",
        "an offset does not say which partitions it is about",
        (Edit(SPARK_LOOKING, "queues=here.queues, partitions=named)", "queues=here.queues)"),),
        (NEW_TO_A_CHECKPOINT,),
    ),
    Bug(
        "quote-swallows-rows",
        "of a file of CSV whose quotes are wrong the rows are what Spark takes for rows",
        (Edit("headwater/pipeline/files.py", "    if not reading.is_odd:\n", "    if reading:\n"),),
        ("tests/pipeline/flows/test_load.py::test_a_row_whose_quotes_are_wrong_is_set_aside_as_it_stands",),
    ),
    Bug(
        "strange-bytes-replaced",
        "bytes of a file of CSV that are not UTF-8 become U+FFFD without a word",
        (
            Edit(
                "headwater/pipeline/files.py",
                'strange = ~f.is_valid_utf8("value") if isinstance(alphabet, Utf8) else no',
                "strange = no",
            ),
        ),
        ("tests/pipeline/flows/test_load.py::test_a_line_that_is_not_utf_8_is_set_aside",),
    ),
    Bug(
        "filter-counts-anew",
        "messages that a filter leaves over get the offsets of those before them",
        (Edit(SPARK_PLANNING, "first_offset=body.first_offset + begin,", "first_offset=body.first_offset,"),),
        ("tests/pipeline/test_filters.py::test_what_is_read_is_what_a_filter_means_each_at_its_offset",),
    ),
    Bug(
        "micro-batch-without-its-step",
        "a micro-batch that runs again after a kill is pushed again",
        (Edit("headwater/pipeline/sink.py", "operations=[step, *operations])", "operations=operations)"),),
        ("tests/pipeline/test_stateful_kills.py",),
    ),
    Bug(
        "destination-not-kept",
        "a sink pushes to whatever store and queue its checkpoint is aimed at",
        (
            Edit(
                SPARK_DESTINATION,
                "    if before is None or found is None:\n        return False\n",
                "    if before is None or found is None or found.store:\n        return False\n",
            ),
        ),
        (f"{KNOWN_AGAIN}::test_a_sink_is_told_that_its_store_or_queue_is_another",),
    ),
    Bug(
        "step-without-its-destination",
        "a step is known by the number of its records alone, wherever they went",
        (
            Edit(
                "headwater/pipeline/sink.py",
                """f"{count} records{f' to {queue}' if queue else ''}{f', offsets {digest}' if digest else ''}\"""",
                'f"{count} records"',
            ),
        ),
        (f"{KNOWN_AGAIN}::test_a_copied_checkpoint_aimed_at_another_queue_never_pushes_nothing_in_silence",),
    ),
    Bug(
        "column-beats-the-option",
        "rows that were read go back to where they were, whatever the write says",
        (Edit(SPARK_ENCODING, "    if option or column is None:\n", "    if column is None:\n"),),
        ("tests/pipeline/test_write.py::test_a_batch_of_rows_goes_where_the_options_say",),
    ),
    Bug(
        "circle-unseen",
        "a stream that pushes to the queue it reads is not noticed, because the store's identity is not compared",
        (Edit(SPARK_DESTINATION, "if source.store == found.store for", 'if source.store == "" for'),),
        (f"{KNOWN_AGAIN}::test_a_query_that_pushes_to_what_it_reads_is_refused",),
    ),
    Bug(
        "limit-by-lsn",
        "a limit takes messages as they were written: after a bulk write one partition after the other",
        (Edit(SPARK_ADMISSION, "np.lexsort((owner, shares, times))[:limit]", "np.arange(len(times))[:limit]"),),
        (f"{ADMITTED}::test_what_is_in_order_in_each_partition_is_in_order_over_all_micro_batches",),
    ),
    Bug(
        "limit-by-what-is-known",
        "a limit takes the earliest of the messages whose times are loaded, though earlier ones may not be",
        (Edit(SPARK_ADMISSION, "            if last <= bound:\n", "            if last:\n"),),
        (f"{ADMITTED}::test_what_is_in_order_in_each_partition_is_in_order_over_all_micro_batches",),
    ),
    Bug(
        "positions-forgotten",
        "an offset says up to which LSN all was read, and not what was read beyond it",
        (
            Edit(
                SPARK_PLANNING,
                "            ahead[segment.partition_id], through = stop, segment.lsn\n",
                "            through = segment.lsn\n",
            ),
        ),
        (f"{ADMITTED}::test_micro_batches_hold_every_record_once_in_order_and_none_more_than_its_limit",),
    ),
    Bug(
        "times-cut-to-thousandths",
        "payloads have times as Spark writes them unless it is told otherwise",
        (Edit("headwater/pipeline/spelling.py", "ss.SSSSSSXXX", "ss.SSSXXX"),),
        ("tests/pipeline/test_round_trip.py::test_values_are_the_same_whichever_way_they_came_in",),
    ),
    Bug(
        "null-fits-a-schema",
        "a payload that is null passes for an object of which nothing is known",
        (
            Edit(
                "headwater/pipeline/typed.py",
                "without_none(_shape(with_required(self._kind, required)))",
                "_shape(with_required(self._kind, required))",
            ),
        ),
        ("tests/pipeline/test_typed.py::test_a_field_that_must_be_there_is_asked_for",),
    ),
    Bug(
        "rows-known-in-their-order",
        "a table write that is tried again is another one when its rows come in another order",
        (
            Edit(
                "headwater/pipeline/keys.py",
                'total += int.from_bytes(digest[:ROWS_BYTES], "big")',
                'total = 3 * total + int.from_bytes(digest[:ROWS_BYTES], "big")',
            ),
        ),
        ("tests/pipeline/test_write.py::test_rows_are_known_in_any_order_and_told_from_all_others",),
    ),
    Bug(
        "key-outlives-its-queues",
        "a table write whose queues are in a column pushes nothing after one of them was deleted",
        (
            Edit(
                "headwater/pipeline/keys.py",
                "gone = may_look and _is_gone(",
                "gone = one_queue and may_look and _is_gone(",
            ),
        ),
        ("tests/pipeline/test_write.py::test_a_key_goes_when_any_queue_of_its_write_goes",),
    ),
    Bug(
        "backup-held-to-its-identity",
        "readers keep the identity that a backup was made with, which its first writer changes",
        (
            Edit(
                "headwater/stores/sqlite/reading.py",
                'return "" if is_backup(self._file) else read_identity(self._connection)',
                "return read_identity(self._connection)",
            ),
        ),
        (f"{KNOWN_AGAIN}::test_what_is_read_of_a_backup_before_its_first_writer_stays_good_after_it",),
    ),
    Bug(
        "priority-behind-what-waited",
        "lanes of a priority are asked for like all others: whoever has waited longest is first",
        (Edit(CURSORS, "if self._catalog.has_priorities(group.queue):", "if False:"),),
        (
            "tests/contracts/test_priorities.py::"
            "test_a_priority_overtakes_named_partitions_and_lanes_that_are_ready_longer",
        ),
    ),
    Bug(
        "capture-takes-any-publication",
        "a publication that was altered and put right again is taken for the one that was followed",
        (
            Edit(
                "headwater/capture/postgres.py",
                "if faults or (position.marks and marks_differ(found, position.marks, needed)):",
                "if faults:",
            ),
        ),
        ("tests/capture/test_postgres_publication.py",),
    ),
    Bug(
        "bucket-closed-under-those-who-take-over",
        "a store in a bucket is closed while somebody still takes it over",
        (
            Edit(
                "headwater/stores/sqlite/store.py",
                "        self.medium.stop()\n        async with self._recovering:",
                "        if True:",
            ),
        ),
        (
            "tests/stores/bucket/test_store.py::test_who_waits_for_a_store_that_is_let_go_of_is_told_and_takes_nothing_over",
        ),
    ),
    Bug(
        "capture-takes-a-neighbours-slot",
        "names of slots are taken for those of one database, and they hold for the whole server",
        (
            Edit(
                "headwater/capture/postgres_control.py",
                "if slot is not None and (why := slot.foreign_to()):",
                'if slot is not None and (why := ""):',
            ),
        ),
        ("tests/capture/test_postgres_neighbours.py",),
    ),
    Bug(
        "capture-begins-anew-in-anothers-slot",
        "whoever says resync, or drops, means whatever slot bears the name, also one that its log never knew",
        (
            Edit(
                "headwater/capture/follower.py",
                "    if await source.keeps_place():\n",
                "    if False:\n",
            ),
        ),
        ("tests/capture/test_postgres_neighbours.py",),
    ),
    Bug(
        "capture-pushes-json-unchecked",
        "JSON of a source is taken into a record as it is, though no reader may be able to read it",
        (
            Edit(
                "headwater/capture/follower.py",
                "return encode_payload(msgspec.Raw(msgspec.json.encode(change)), bytes_max)",
                "return msgspec.Raw(msgspec.json.encode(change))",
            ),
        ),
        ("tests/capture/test_postgres_json.py",),
    ),
    Bug(
        "drain-stops-at-a-full-queue",
        "one queue that refuses its rows ends the drain of all",
        (
            Edit(
                "headwater/services/draining.py",
                "return Fate.HELD if outcome.retryable else Fate.REFUSED",
                "return Fate.TROUBLE if outcome.retryable else Fate.REFUSED",
            ),
        ),
        ("tests/interfaces/test_draining.py",),
    ),
    Bug(
        "drain-overtakes-in-a-line",
        "rows of one partition share a commit although it does not keep their order",
        (
            Edit(
                "headwater/services/draining.py",
                "if row.line not in cut and lifetimes.setdefault(row.line, lifetime) == lifetime:",
                "if row.line not in cut:",
            ),
        ),
        ("tests/interfaces/test_draining.py",),
    ),
    Bug(
        "drain-counts-others-rows",
        "a drain counts rows that another one dropped",
        (
            Edit(
                "headwater/stores/outbox/table.py",
                "return bool(run(self._connection, statement, values).rowcount)",
                "return run(self._connection, statement, values) is not None",
            ),
        ),
        ("tests/interfaces/test_draining.py",),
    ),
    Bug(
        "errors-show-the-mark",
        "errors name jobs as they are kept, not as their caller chose",
        (
            Edit(
                "headwater/doors/jobs/own_names.py",
                "error.args = tuple(_shown(principal, value) for value in error.args)",
                "pass",
            ),
        ),
        ("tests/doors/test_own_job_names.py",),
    ),
    Bug(
        "two-jobs-of-one-id",
        "somebody who may use some queues sees another's job under the id of theirs",
        (
            Edit(
                "headwater/doors/jobs/own_names.py",
                "return await site.queues.ask(FindJob(principal.database, own)) is None",
                "return True",
            ),
        ),
        ("tests/doors/test_own_job_names.py",),
    ),
    Bug(
        "errors-in-the-clear",
        "the error of an encrypted queue's dead letter can be read in the file",
        (
            Edit(
                "headwater/stores/tables/dead_letters.py",
                """            reason = ""
""",
                "",
            ),
        ),
        ("tests/stores/test_sqlite_file.py",),
    ),
    Bug(
        "events-in-the-clear",
        "what is noted of an encrypted queue's record can be read in the file",
        (
            Edit(
                "headwater/stores/tables/traces.py",
                "told = self._hidden(told)",
                "pass",
            ),
        ),
        ("tests/stores/test_sqlite_file.py",),
    ),
    Bug(
        "old-leases-told-again",
        "a pop that is repeated with its key is told of a lease that is over, while others have its records",
        (
            Edit(
                "headwater/stores/tables/repeated_pops.py",
                "held = set(rules.still_held(cursor, lease.token, now))",
                "held = {place.offset for place in places}",
            ),
        ),
        ("tests/contracts/test_idempotency.py",),
    ),
    Bug(
        "outbox-without-priority",
        "the outbox forgets the priority on the way",
        (
            Edit(
                "headwater/stores/tables/pushes.py",
                "choose_lane(queue, push.records[0].transaction_id, now, push.priority)",
                "choose_lane(queue, push.records[0].transaction_id, now)",
            ),
        ),
        ("tests/interfaces/test_ways_of_pushing.py",),
    ),
    Bug(
        "outbox-stages-outside-a-transaction",
        "a message on a server commits on its own, whatever becomes of the users' rows",
        (
            Edit(
                "headwater/stores/outbox/connections.py",
                "begun = not beneath.autocommit or beneath.info.transaction_status != _IDLE",
                "begun = True",
            ),
        ),
        ("tests/interfaces/test_staging_on_a_server.py::test_a_message_without_a_transaction_is_refused",),
    ),
    Bug(
        "copy-takes-rows-on-trust",
        "a store that was moved is not compared with where it came from",
        (Edit(TRANSFER, "        refuse_different(source, target, table)\n", "        pass\n"),),
        ("tests/stores/test_transfer.py::test_a_difference_between_the_places_is_found_and_the_old_store_goes_on",),
    ),
    Bug(
        "copy-keeps-what-is-gone",
        "rows that were dropped while a store is moved are there again afterwards",
        (Edit("headwater/stores/likeness.py", "    target.remove(table.name, table.key, found.gone)\n", ""),),
        (
            "tests/stores/test_transfer.py::test_a_move_that_is_killed_leaves_one_store_and_goes_on_with_the_same_command",
        ),
    ),
    Bug(
        "copy-switches-without-the-lock",
        "what is written between the last look and the seal is lost",
        (Edit(TRANSFER, "    with source.hold(writes=True) as held:", "    with source.hold(writes=False) as held:"),),
        (MOVING,),
    ),
    Bug(
        "copy-opens-before-the-seal",
        "a store that is being moved can be used at both places",
        (Edit(TRANSFER, "    target.set_meta(UNFINISHED_KEY, identity)\n", ""),),
        (
            "tests/stores/test_transfer.py::test_a_move_that_is_killed_leaves_one_store_and_goes_on_with_the_same_command",
        ),
    ),
    Bug(
        "copy-asks-the-holder-politely",
        "a bucket whose server runs cannot be moved",
        (Edit("headwater/stores/bucket/transfer.py", "            self._store.insist()\n", ""),),
        (f"{MOVING}::test_nothing_is_lost_or_done_twice_while_a_store_is_moved_under_its_users[bucket-file]",),
    ),
    Bug(
        "bucket-without-room-keeps-everybody-waiting",
        "whoever comes while the bucket is full waits behind what is on its way",
        (Edit(SENTINEL, "            self._committer.refuse_waiting(error)\n", "            pass\n"),),
        (
            "tests/faults/test_full_buckets.py::test_a_full_bucket_is_told_and_what_waited_lands_when_there_is_room[image]",
        ),
    ),
    Bug(
        "readers-of-a-full-bucket-wait",
        "whoever reads what has not landed waits for as long as the bucket is full",
        (
            Edit(
                STORE,
                "                self._reserve.check()\n                await asyncio.wait({landed}",
                "                await asyncio.wait({landed}",
            ),
        ),
        (f"{STUCK_BUCKETS}::test_a_full_bucket_is_told_over_http_and_everything_goes_on_when_there_is_room[chain]",),
    ),
    Bug(
        "closing-waits-for-a-full-bucket",
        "whoever closes waits for as long as the bucket is full",
        (Edit(COMMITTER, "and (trouble := self._find_trouble())", "and (trouble := None)"),),
        (f"{STUCK_BUCKETS}::test_a_signal_ends_a_server_on_a_full_bucket[chain]",),
    ),
    Bug(
        "second-signal-asks-once-more",
        "a second signal only asks the server to end, as the first one did",
        (
            Edit(
                "headwater/cli/serve.py",
                "            loop.call_later(HASTE_SECONDS, _end_at_once)\n",
                "            pass\n",
            ),
        ),
        (f"{STUCK_BUCKETS}::test_a_second_signal_ends_a_server_on_a_full_bucket_at_once",),
    ),
    Bug(
        "bucket-of-two-kinds",
        "images are made in a place without claiming the object that a chain begins with",
        (Edit(IMAGE_KEEPER, "            await self._look.claim()\n", "            pass\n"),),
        (f"{ONE_STORE}::test_of_a_chain_and_images_that_are_made_at_once_one_is",),
    ),
    Bug(
        "bucket-without-a-base-is-empty",
        "a chain that has no base yet is made a store of images",
        (
            Edit(
                "headwater/stores/bucket/keeper.py",
                "            raise kept_otherwise(self._key, found)\n",
                "            pass\n",
            ),
            Edit(IMAGE_KEEPER, "            await self._look.claim()\n", "            pass\n"),
        ),
        (f"{ONE_STORE}::test_a_chain_that_has_no_base_yet_is_not_replaced_by_an_image",),
    ),
    Bug(
        "bucket-passes-over-what-was-swapped",
        "an entry in the place of another is taken for one that never counted, with all behind it",
        (
            Edit(
                "headwater/stores/bucket/looking.py",
                "return void.is_takeover or (void.epoch >= epoch and void.landed > last)",
                "return False",
            ),
        ),
        ("tests/stores/bucket/test_store.py::test_an_entry_in_the_place_of_another_is_not_passed_over",),
    ),
    Bug(
        "bucket-holder-takes-any-base-for-its-own",
        "a holder answers on when the base of another store lies in the place of its own",
        (
            Edit(
                "headwater/stores/bucket/looking.py",
                "            if newest.position <= base.label.position:\n",
                "            if newest.position >= base.label.position:\n                return True\n"
                "            if newest.position <= base.label.position:\n",
            ),
        ),
        (f"{LOST_BUCKETS}::test_a_holder_of_a_chain_says_that_the_base_of_another_store_has_appeared[chain]",),
    ),
    Bug(
        "file-takes-the-base-of-a-bucket",
        "the base of a store in a bucket is opened as a plain file",
        (Edit("headwater/stores/sqlite/place.py", "    if is_whole and any(header[LABEL]):\n", "    if False:\n"),),
        (f"{ONE_STORE}::test_a_base_alone_is_not_opened_as_a_file",),
    ),
    Bug(
        "file-beside-the-log-of-a-bucket",
        "a plain file is made where a store in a bucket has no base yet",
        (Edit("headwater/stores/sqlite/place.py", "        _refuse_log_of_bucket(path)\n", ""),),
        (f"{ONE_STORE}::test_a_store_in_a_folder_is_not_opened_as_a_file[chain-no base]",),
    ),
    Bug(
        "bucket-waits-for-garbage",
        "what is no entry is taken for a bucket that does not answer",
        (
            Edit(
                "headwater/stores/bucket/chain.py",
                "            except (Unsure, StoreError) as error:\n"
                "                await pauses.rest(error)\n"
                "            else:\n"
                "                return None if found is None else decode(found.data, key)\n",
                "                return None if found is None else decode(found.data, key)\n"
                "            except (Unsure, StoreError) as error:\n"
                "                await pauses.rest(error)\n",
            ),
        ),
        (f"{STUCK_BUCKETS}::test_a_signal_ends_a_server_whose_next_object_is_not_of_its_store[chain]",),
    ),
    Bug(
        "bucket-holder-never-looks-back",
        "a holder answers on from memory when the objects of its store were deleted",
        (
            Edit(
                "headwater/stores/bucket/chain_keeper.py",
                "missing = await self._find_missing(is_base=turn % 2 == 0)",
                'missing = ""',
            ),
        ),
        (f"{LOST_BUCKETS}::test_a_holder_says_that_its_objects_were_deleted[chain-lease-ask]",),
    ),
    Bug(
        "bucket-holder-takes-an-older-image-for-its-own",
        "a holder answers on from memory when an older image was put back",
        (Edit("headwater/stores/bucket/image_keeper.py", "if _is_older(found, seen) and not", "if False and not"),),
        (f"{LOST_BUCKETS}::test_a_holder_says_that_older_objects_were_put_in_their_place[image-lease-ask]",),
    ),
    Bug(
        "bucket-standby-gives-up-its-guard",
        "a server hands on to a holder that lets others in than it does itself",
        (Edit(FRONT, "    if holder.guard != own.guard:\n", "    if False:\n"),),
        (f"{FRONT_TESTS}::test_nothing_is_handed_on_to_a_holder_that_says_it_is_guarded_otherwise",),
    ),
    Bug(
        "bucket-holder-takes-what-was-meant-for-another-guard",
        "a holder that was started anew without authentication answers what a guarded server handed on",
        (Edit(FRONT, "if guard != self._own.guard:", "if False:"),),
        (f"{FRONT_TESTS}::test_a_holder_that_was_started_anew_with_another_guard_refuses_what_is_handed_on",),
    ),
    Bug(
        "bucket-standby-reads-all-again",
        "a broker that waits for a store reads its whole log with every look",
        (Edit("headwater/stores/bucket/chain.py", "end = self._end and await", "end = None and await"),),
        (f"{STANDING_BY}::test_who_waits_for_an_idle_holder_asks_two_things_a_look",),
    ),
    Bug(
        "bucket-standby-sticks-to-what-was-collected",
        "a broker that slept takes the entry it had seen for the end of the log though those behind it were collected",
        (Edit("headwater/stores/bucket/looking.py", "        if kept != last:\n            return None\n", ""),),
        (f"{STANDING_BY}::test_who_slept_while_what_it_had_seen_was_collected_finds_the_end",),
    ),
    Bug(
        "bucket-makes-a-lost-image-anew",
        "a store of images whose image is gone is made anew",
        (Edit(IMAGE_KEEPER, "                await self._look.refuse_lost()\n", "                pass\n"),),
        (f"{ONE_STORE}::test_a_store_of_images_whose_image_is_gone_is_not_made_anew",),
    ),
    Bug(
        "bucket-lowered-cap-is-none",
        "a cap below what the file has is not kept to",
        (Edit("headwater/stores/bucket/scratch.py", "if self._cap and self._used()", "if False and self._used()"),),
        (f"{ONE_STORE}::test_a_cap_that_was_lowered_is_one_though_the_file_has_room",),
    ),
    Bug(
        "bucket-standby-begins-anew",
        "a broker that waits for a store makes a new one when the objects of that one were deleted",
        (
            Edit(
                "headwater/stores/bucket/chain.py",
                "return any(entry.header.put_id == put_id for entry in walk.entries)",
                "return True",
            ),
        ),
        (f"{LOST_BUCKETS}::test_who_waits_for_the_store_makes_no_new_one_in_its_place[chain]",),
    ),
    Bug(
        "copy-gives-numbers-again",
        "new rows at the new place get numbers that rows of the old one had",
        (Edit(TRANSFER, "max(numbers.get(table.name, 0), source.highest(table.name))", "source.highest(table.name)"),),
        ("tests/stores/test_transfer.py::test_numbers_of_what_is_gone_are_not_given_again_at_the_other_place",),
    ),
    Bug(
        "postgres-trusts-that-it-is-alone",
        "a push in one round trip is not refused when another process has committed since",
        (Edit(POSTGRES_COMMITS, "(self.sql.refuse_overtaken, (self._version,)), *rest]", "*rest]"),),
        ("tests/stores/test_postgres.py::test_a_push_that_was_overtaken_is_decided_anew",),
    ),
    Bug(
        "postgres-appends-whatever-was-changed",
        "a push behind those of others goes by options and names that another process has changed since",
        (Edit(POSTGRES_GUARD, "'catalog_version'), 0) = $1", "'catalog_version'), 0) >= $1"),),
        ("tests/stores/test_postgres_appends.py::test_options_that_another_process_has_changed_hold",),
    ),
    Bug(
        "postgres-appends-and-wakes-nobody",
        "a push behind those of others leaves groups asleep that had caught up",
        (Edit("headwater/stores/postgres/appends.py", "[*appends, *wakes.values()]", "appends"),),
        ("tests/stores/test_postgres_appends.py::test_a_group_that_had_caught_up_is_woken",),
    ),
    Bug(
        "postgres-believes-what-it-read-too-early",
        "what was decided before the lock stands although another process has committed since",
        (Edit(POSTGRES_COMMITS, "            if was_unopened:\n                raise Overtaken\n", ""),),
        ("tests/stores/test_postgres.py::test_a_read_that_finds_the_store_overtaken_decides_anew",),
    ),
    Bug(
        "postgres-appends-without-the-lock",
        "LSNs are given in one order and become visible in another",
        (
            Edit(POSTGRES_COMMITS, ", (self.sql.take_append_lock, ())", ""),
            Edit(POSTGRES_COMMITS, "_OPENING = 4", "_OPENING = 3"),
        ),
        ("tests/stores/test_postgres.py::test_whoever_follows_by_lsn_misses_nothing_while_several_processes_push",),
    ),
    Bug(
        "postgres-reads-before-the-disk",
        "a reader is given what a crash of the server takes back",
        (Edit("headwater/stores/postgres/read_thread.py", "if not is_flushed:", "if is_flushed is None:"),),
        ("tests/faults/test_postgres.py::test_what_a_reader_was_given_survives_a_crash",),
    ),
    Bug(
        "postgres-barrier-without-the-disk",
        "the barrier behind a commit waits for nothing",
        (
            Edit(
                "headwater/stores/postgres/sql/commits.sql",
                "pg_logical_emit_message(true,",
                "pg_logical_emit_message(false,",
            ),
        ),
        ("tests/faults/test_postgres.py::test_a_commit_that_was_answered_survives_a_crash_of_the_server",),
    ),
    Bug(
        "postgres-believes-what-it-read-ahead",
        "what was read before a write of the same commit is taken for what is there after it",
        (
            Edit(
                "headwater/stores/postgres/foreseen.py",
                "return all(self._written_at.get(table, 0) <= read_at for table in tables)",
                "return True",
            ),
        ),
        ("tests/contracts/test_leases.py", "tests/contracts/test_engines_agree.py"),
    ),
    Bug(
        "postgres-leases-what-it-read-ahead",
        "a job that changed hands in the same commit is given out with the token of its first lease",
        (
            Edit(
                "headwater/stores/postgres/foreseen.py",
                "if not self._holds(self._sql.ready_heads, 0):",
                "if not self._jobs:",
            ),
        ),
        (
            "tests/stores/test_postgres.py::test_a_job_that_changes_hands_within_a_commit_has_the_token_of_its_last_lease",
        ),
    ),
    Bug(
        "postgres-positions-keep-their-version",
        "whoever looks a position up walks over all that it was before",
        (
            Edit(
                "headwater/stores/postgres/sql/cursors.sql",
                "UPDATE hw_cursors SET version = version + 1, position",
                "UPDATE hw_cursors SET position",
            ),
        ),
        (f"{POSTGRES_HELD}::test_pops_and_pushes_look_at_no_more_pages_after_many_turns",),
    ),
    Bug(
        "postgres-floors-are-never-lowered",
        "what becomes ready earlier than was looked for is never found",
        (
            Edit(
                "headwater/stores/postgres/migrations/0005_version_positions.sql",
                "IF NEW.ready_at < known.ready_at THEN",
                "IF false THEN",
            ),
        ),
        (f"{POSTGRES_HELD}::test_a_message_of_a_machine_whose_clock_is_behind_is_found",),
    ),
    Bug(
        "postgres-gap-is-never-closed",
        "a lease that ends among those that were given back is passed over",
        (
            Edit(
                "headwater/stores/postgres/migrations/0005_version_positions.sql",
                "ELSIF NEW.ready_at > known.gap_from AND NEW.ready_at < known.gap_to THEN",
                "ELSIF false THEN",
            ),
        ),
        (f"{POSTGRES_HELD}::test_a_lease_that_ends_early_is_the_next_that_is_ready",),
    ),
    Bug(
        "postgres-floor-of-jobs-is-never-lowered",
        "a job that comes back is never claimed again",
        (
            Edit(
                "headwater/stores/postgres/migrations/0006_version_job_counts.sql",
                "(-NEW.priority, NEW.number) < (-f.priority, f.number)",
                "false",
            ),
        ),
        (f"{POSTGRES_HELD}::test_a_job_that_is_retried_by_hand_is_claimed_again",),
    ),
    Bug(
        "filter-takes-true-for-1",
        "a boolean meets a filter that asks for a number",
        (Edit(FILTER_PYTHON, " and {name} is not {bool(value)}", ""),),
        (FORMS_AGREE,),
    ),
    Bug(
        "filter-takes-lists-for-texts",
        "in SQLite a list or an object meets the text that it is written as",
        (Edit(FILTER_DIALECTS, """is_text=f"{kind} = 'text'",""", 'is_text="",'),),
        (FORMS_AGREE,),
    ),
    Bug(
        "filter-loses-what-sql-does-not-know",
        "the opposite of a condition does not hold for documents without the field",
        (Edit(FILTER_SQL, 'f"({clause}) IS NOT TRUE"', 'f"NOT ({clause})"'),),
        (FORMS_AGREE,),
    ),
    Bug(
        "filter-rounds-the-opposite-too",
        "where an engine rounds, the opposite of a condition loses documents",
        (Edit(FILTER_SQL, "        if negated:\n            return NO\n", ""),),
        (FORMS_AGREE,),
    ),
    Bug(
        "filter-ends-a-prefix-in-the-surrogates",
        "the text behind all with a beginning is none",
        (Edit(FILTER_SQL, "chr(0xE000 if following == 0xD800 else following)", "chr(following)"),),
        (FORMS_AGREE,),
    ),
    Bug(
        "filter-reads-a-missing-claim-as-null",
        "who has no such claim meets all documents without the field",
        (Edit("headwater/filters/claims.py", "    if value is None:\n        return None\n", ""),),
        ("tests/filters/test_claims.py::test_a_claim_that_is_missing_opens_nothing",),
    ),
    Bug(
        "filter-compares-a-claim-beyond-its-bounds",
        "a claim that no filter can hold is compared with a value",
        (Edit("headwater/filters/claims.py", "    if not _can_be_compared(value):\n        return None\n", ""),),
        ("tests/filters/test_claims.py::test_a_claim_that_no_filter_can_hold_opens_nothing_beside_a_value_either",),
    ),
    Bug(
        "filter-costs-what-it-likes",
        "a filter may search a text a thousand times",
        (Edit("headwater/filters/tree.py", "if cost > COST_MAX:", "if cost > COST_MAX * COST_MAX:"),),
        ("tests/filters/test_parse.py::test_a_filter_beyond_its_bounds_is_refused_by_its_size",),
    ),
    Bug(
        "match-looks-at-what-is-alone",
        "a document that stops matching is not told as having left",
        (Edit(MATCHER, "for image in (after, before):", "for image in (after,):"),),
        ("tests/services/matching/test_matcher.py::test_a_change_is_told_as_what_it_is_to_the_set",),
    ),
    Bug(
        "match-takes-true-for-1",
        "two filters that Python holds equal are filed as one",
        (Edit(MATCHER, "name = repr(expression)", "name = str(hash(expression))"),),
        ("tests/services/matching/test_matcher.py::test_filters_that_differ_in_1_and_true_alone_are_two",),
    ),
    Bug(
        "match-files-an-or-once",
        "a filter is found by the first of its alternatives alone",
        (
            Edit(
                "headwater/services/matching/access.py",
                "for part in expression.parts for way in ways",
                "for part in expression.parts[:1] for way in ways",
            ),
        ),
        ("tests/services/matching/test_matcher.py::test_an_or_is_found_by_each_of_its_sides",),
    ),
    Bug(
        "match-leaves-out-where-a-range-ends",
        "a value that is the end of a range does not find it",
        (
            Edit(
                "headwater/services/matching/intervals.py",
                "run = point.ends[bisect_left(point.ends, (value, 0)) :]",
                "run = point.ends[bisect_right(point.ends, (value, self._last)) :]",
            ),
        ),
        ("tests/services/matching/test_matcher.py::test_intervals_are_found_by_what_lies_in_them",),
    ),
    Bug(
        "match-keeps-what-nobody-watches",
        "a filter whose last watcher left stays in the indexes",
        (Edit(MATCHER, "for take_out in filed.places:", "for take_out in filed.places[1:]:"),),
        ("tests/services/matching/test_matcher.py",),
    ),
    Bug(
        "live-asks-once-who-may",
        "a right that is withdrawn is noticed by nobody who follows already",
        (Edit(FEED, "        withdrawn = self.may()\n", "        withdrawn = None\n"),),
        (f"{LIVE}::test_a_right_that_is_withdrawn_ends_the_subscription_before_the_next_change",),
    ),
    Bug(
        "live-tells-the-snapshot-again",
        "what a snapshot has is told once more as changes",
        (Edit(FEED, "if self._known.has(event):", "if False:"),),
        (f"{LIVE}::test_between_snapshot_and_changes_nothing_is_missed_and_nothing_comes_twice",),
    ),
    Bug(
        "live-passes-over-a-loss",
        "changes that were dropped before they were told are passed over in silence",
        (Edit(FEED, "if step.resync is not None:", "if step.resync is not None and not step.through:"),),
        (f"{LIVE}::test_changes_that_were_dropped_before_they_were_told_are_not_passed_over",),
    ),
    Bug(
        "live-shows-what-has-left",
        "of a document that is not in the set any more, its new fields are told",
        (
            Edit(
                "headwater/doors/realtime/document_messages.py",
                'if include_data in (None, "both") and not is_gone:',
                'if include_data in (None, "both"):',
            ),
        ),
        (f"{LIVE}::test_what_enters_changes_and_leaves_a_set_is_told",),
    ),
    Bug(
        "live-resumes-too-late",
        "who resumes misses the first change",
        (Edit(SUBSCRIPTIONS, "if place[0] > last_seq else None", "if place[0] > last_seq + 1 else None"),),
        (f"{LIVE}::test_a_client_whose_connection_is_cut_again_and_again_misses_nothing",),
    ),
    Bug(
        "live-resumes-over-a-gap",
        "who resumes behind what is kept is not told",
        (Edit(SUBSCRIPTIONS, "return start <= last_seq + 1 <= end", "return True"),),
        (f"{LIVE}::test_a_place_that_the_log_never_reached_is_answered_with_resync",),
    ),
    Bug(
        "live-takes-forged-tokens",
        "a resume token is believed unsigned",
        (
            Edit(
                "headwater/services/resume_tokens.py",
                "if not hmac.compare_digest(signature, await self._signature(body)):",
                "if not body:",
            ),
        ),
        (f"{LIVE}::test_a_forged_a_foreign_and_an_old_token_are_refused",),
    ),
    Bug(
        "live-takes-tokens-of-others",
        "a resume token is good for whoever has it",
        (
            Edit(
                "headwater/doors/realtime/documents.py",
                "if (about.database, about.subject) != (session.database, session.known.subject):",
                "if about.database != session.database:",
            ),
        ),
        (f"{LIVE}::test_a_forged_a_foreign_and_an_old_token_are_refused",),
    ),
    Bug(
        "live-tells-the-last-change-for-ever",
        "who resumes is told the last change again and again, while others take the log on",
        (
            Edit(
                SUBSCRIPTIONS,
                "segments = [segment for segment in read if segment.first_offset + len(segment.records) > first]",
                "segments = list(read)",
            ),
            Edit(SUBSCRIPTIONS, "if not segments or segments[0].first_offset > first:", "if not segments:"),
            Edit(
                SUBSCRIPTIONS,
                "move = await judge.move(change, images) if place[0] > last_seq else None",
                "move = await judge.move(change, images)",
            ),
        ),
        (f"{LIVE}::test_a_resume_tells_each_change_once_however_far_others_took_the_log_on",),
    ),
    Bug(
        "live-leaves-a-gap-behind-the-snapshot",
        "what is written while a snapshot is read is in neither it nor the events",
        (
            Edit(
                SUBSCRIPTIONS,
                "        subscription.go_live(known)\n",
                "        subscription.go_live(Known(subscription.feed.position))\n",
            ),
        ),
        (f"{LIVE}::test_what_is_written_while_a_snapshot_is_read_comes_behind_it",),
    ),
    Bug(
        "live-resumes-from-now",
        "who resumes at another server goes on with what comes, and misses what came",
        (
            Edit(
                "headwater/doors/realtime/documents.py",
                "        await go_on(follower, subscription, expression, last, gap)\n    except",
                "        subscription.go_live(Known(subscription.feed.position))\n    except",
            ),
        ),
        (LIVE_SERVERS,),
    ),
    Bug(
        "listener-outlives-its-token",
        "a live query by server-sent events goes on when its token is revoked or over, and under rules of before",
        (Edit("headwater/doors/wire.py", 'path.endswith("/sse")', 'path.endswith("/ws")'),),
        ("tests/doors/realtime/test_listeners.py",),
    ),
    Bug(
        "wait-outlasts-the-rules",
        "who waits on a log is given documents that new access rules keep from them",
        (Edit(RECEPTION, "                require_queue(principal, queue)\n", "                str(queue)\n"),),
        ("tests/doors/realtime/test_listeners.py::test_who_waits_on_a_log_is_not_given_what_new_rules_keep_from_them",),
    ),
    Bug(
        "log-read-past-the-rules",
        "the log of a collection is read by those who may read some of its documents",
        (Edit("headwater/doors/native/questions.py", "if not request.principal.may_use(queue):", "if not queue:"),),
        (f"{DOCUMENT_RULES}::test_the_log_of_a_collection_with_rules_is_for_administrators",),
    ),
    Bug(
        "snapshot-of-any-size",
        "a snapshot of large documents is one message, however large",
        (Edit("headwater/services/subscriptions.py", "PAGE_BYTES = 512 * KIB", "PAGE_BYTES = 1 << 40"),),
        ("tests/doors/realtime/test_documents.py::test_a_snapshot_of_large_documents_comes_in_small_parts",),
    ),
    Bug(
        "history-without-waiting",
        "a client that reads a long history is let go as too slow",
        (Edit("headwater/doors/realtime/rooms.py", "await session.taken(CATCH_UP_BYTES)", "pass"),),
        ("tests/doors/realtime/test_catching_up.py::test_a_client_that_reads_is_not_sent_more_than_may_wait_for_it",),
    ),
    Bug(
        "epoch-not-looked-at",
        "the first messages of a room that was made again are taken for known ones",
        (
            Edit(
                "headwater/doors/realtime/rooms.py",
                'is_another = since != "beginning" and not outline.counts_in(epoch)',
                "is_another = False",
            ),
        ),
        ("tests/doors/realtime/test_rooms.py::test_who_was_away_while_a_room_was_made_again_is_told",),
    ),
    Bug(
        "epoch-of-any-store",
        "messages of a room that were given known offsets after a restore never come",
        (
            Edit(
                "headwater/services/room_outline.py",
                'return "" if partition_id is None else f"{identity}.{partition_id}"',
                'return "" if partition_id is None else str(partition_id)',
            ),
        ),
        (f"{ROOMS_RESTORED}::test_who_joins_again_is_told_to_begin_anew_and_gets_everything",),
    ),
    Bug(
        "listener-comes-back-without-epoch",
        "an EventSource goes on in a restored room as if its offset were one of it",
        (Edit("headwater/doors/realtime/rooms.py", 'return f"{offset}@{epoch}"', "return str(offset)"),),
        ("tests/doors/realtime/test_room_routes.py::test_one_who_only_listens_hears_everything_and_is_not_seen",),
    ),
    Bug(
        "followed-into-another-store",
        "whoever follows a room over a server misses what was said after a restore",
        (Edit("headwater/client/following.py", 'if store and self._store not in ("", store):', "if False:"),),
        (f"{ROOMS_RESTORED}::test_whoever_follows_over_a_server_whose_store_is_restored_is_told",),
    ),
    Bug(
        "made-up-rooms-stay",
        "whoever may look on fills the store with rooms in which nothing was said",
        (
            Edit(
                "headwater/stores/tables/retention.py",
                "self._drop_silent_rooms(operation.after, rows[-1][0]) if rows else 0",
                "0",
            ),
        ),
        ("tests/contracts/test_rooms.py::test_a_room_in_which_nothing_was_said_is_gone_when_nobody_is_there_any_more",),
    ),
    Bug(
        "spoken-rooms-go",
        "a room that is quiet for long counts anew, and who comes back with an offset misses messages",
        (
            Edit(
                "headwater/stores/sqlite/sql/retention.sql",
                "AND NOT EXISTS (SELECT 1 FROM hw_partitions k WHERE k.queue_id = q.id AND k.name = ?4)",
                "AND ?4 <> ''",
            ),
        ),
        ("tests/contracts/test_rooms.py::test_a_room_in_which_nothing_was_said_is_gone_when_nobody_is_there_any_more",),
    ),
    Bug(
        "tombstones-told-to-every-replica",
        "a pull tells the ids of deleted documents that were never theirs to read",
        (Edit(REPLICATION, "elif one.id in departed.ids:", "elif one.deleted or one.id in departed.ids:"),),
        (f"{REPLICA_RULES}::test_a_replica_learns_what_became_of_its_copies_and_nothing_of_others",),
    ),
    Bug(
        "replica-keeps-what-left",
        "a document that is given away stays in the replicas of who had it",
        (Edit(REPLICATION, "elif one.id in departed.ids:", "elif one.deleted and one.id in departed.ids:"),),
        (f"{REPLICA_RULES}::test_whatever_happens_a_replica_comes_to_have_what_may_be_read",),
    ),
    Bug(
        "replica-complete-with-every-page",
        "what left before a page of a pull, and was written behind it, stays in the replica",
        (Edit(REPLICATION, "return Lsn(checkpoint.since)", "return after"),),
        (f"{REPLICA_RULES}::test_what_left_before_a_page_and_was_written_behind_it_is_told",),
    ),
    Bug(
        "replica-goes-on-under-other-rules",
        "a replica is never told of what new rules let it read",
        (
            Edit(
                REPLICATION,
                "if checkpoint.rules != self._rules:",
                "if False:",
            ),
        ),
        (f"{REPLICA_RULES}::test_other_rules_give_a_replica_what_it_could_not_read_before",),
    ),
    Bug(
        "pair-tells-when-it-was-written",
        "a checkpoint that names a hidden document by its time is answered otherwise than one that does not",
        (Edit(REPLICATION, " or not self._may_read(found):", ":"),),
        (f"{REPLICA_RULES}::test_a_pair_cannot_be_used_to_ask_when_a_document_was_written",),
    ),
    Bug(
        "position-of-a-hidden-document",
        "where a query goes on from is told as the id of a document that may not be read",
        (Edit("headwater/doors/native/documents.py", "check=_check_query, show=_show_query)", "check=_check_query)"),),
        (f"{DOCUMENT_RULES}::test_no_place_to_go_on_from_is_that_of_a_document_which_may_not_be_read",),
    ),
    Bug(
        "tombstones-judged-by-rules",
        "a rule that says what a field is not lets everybody see what was deleted",
        (
            Edit(
                "headwater/stores/tables/document_answers.py",
                "hides_deleted = asked.permit is not None or not asked.query.show_deleted",
                "hides_deleted = not asked.query.show_deleted",
            ),
        ),
        (f"{DOCUMENT_RULES}::test_of_what_is_deleted_only_those_are_told_who_are_held_to_no_rule",),
    ),
    Bug(
        "passing-message-handed-out-twice",
        "what only passes is handed out where it was said, and again when the log brings it back",
        (Edit("headwater/services/live_room.py", "if origin_of(record) != self._origin", "if record is not None"),),
        ("tests/services/test_rooms.py",),
    ),
    Bug(
        "revoked-in-a-conversation",
        "a conversation goes on with a token that was revoked",
        (
            Edit(
                "headwater/doors/realtime/hall.py",
                "if self._by_credential and self._checking is None:",
                "if self._by_credential is None:",
            ),
        ),
        ("tests/doors/realtime/test_session.py",),
    ),
    Bug(
        "watermark-of-a-server-long-gone",
        "a server that was not there for an hour holds the lowest watermark",
        (Edit("headwater/model/room.py", "if _was_lately(mark.updated_at, now, ALIVE_SECONDS)", "if mark.lsn"),),
        ("tests/services/test_rooms.py",),
    ),
    Bug(
        "left-and-still-counted",
        "the members of a room that all have left are counted until their server is taken for silent",
        (Edit("headwater/model/room.py", "self._counts[came.origin] = came.count", "pass"),),
        ("tests/services/test_room_counts.py",),
    ),
    Bug(
        "hole-in-a-room-passed-over",
        "messages that were dropped before they were read are passed over in silence",
        (Edit("headwater/services/room.py", "        if offset > self._next:\n", "        if offset < 0:\n"),),
        ("tests/services/test_room_places.py",),
    ),
    Bug(
        "offset-that-never-was-waited-for",
        "whoever follows a room from an offset that never was waits in silence until there is one",
        (Edit("headwater/services/room_outline.py", "return UNKNOWN", 'return ""'),),
        ("tests/services/test_room_places.py",),
    ),
    Bug(
        "room-made-again-not-heard",
        "whoever follows a room that was deleted and made again is deaf until its offsets are where they were",
        (
            Edit(
                "headwater/services/room.py",
                "if self._partition_id not in (None, segment.partition_id):",
                "if self._partition_id == -1:",
            ),
        ),
        ("tests/services/test_room_places.py",),
    ),
    Bug(
        "loss-told-with-the-next-message",
        "members learn that messages are gone when somebody says something next",
        (Edit("headwater/services/room_followers.py", "if step.resync is not None:", "if step.resync == -1:"),),
        ("tests/services/test_room_places.py",),
    ),
    Bug(
        "numbers-of-a-room-made-floats",
        "what is merged is decoded and written again, and large numbers are not what was sent",
        (
            Edit(
                "headwater/model/room.py",
                "_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])",
                "_objects = msgspec.json.Decoder(dict[str, Any])",
            ),
        ),
        ("tests/doors/realtime/test_room_numbers.py",),
    ),
    Bug(
        "anybody-writes-to-a-room",
        "records are pushed to a room as to any queue, and so say who is there",
        (Edit("headwater/services/records.py", "if queue.startswith(ROOM_PREFIX):", "if queue == ROOM_PREFIX:"),),
        ("tests/doors/realtime/test_door.py::test_only_a_room_writes_what_is_in_it",),
    ),
    Bug(
        "sender-of-ones-own-choice",
        "a message over the wire is kept without who sent it",
        (Edit("headwater/doors/native/messages.py", "sender=principal.subject", 'sender=""'),),
        ("tests/doors/realtime/test_door.py::test_only_a_room_writes_what_is_in_it",),
    ),
    Bug(
        "trimmed-by-the-highest-watermark",
        "what the fastest server has delivered is dropped before the others have it",
        (Edit("headwater/model/room.py", "return min(alive, default=None)", "return max(alive, default=None)"),),
        ("tests/services/test_room_watermarks.py",),
    ),
    Bug(
        "watermark-begins-at-nothing",
        "a server that starts again has delivered nothing",
        (
            Edit(
                "headwater/services/rooms.py",
                "own = live.watermarks.get(self.instance)",
                "own = live.watermarks.get(self.origin)",
            ),
        ),
        ("tests/services/test_room_watermarks.py",),
    ),
    Bug(
        "watermark-takes-members-away",
        "a server that says how far it is says that nobody is there",
        (
            Edit(
                "headwater/model/room.py", "return [] if roll.only_watermark else self._replace", "return self._replace"
            ),
        ),
        ("tests/services/test_room_watermarks.py",),
    ),
    Bug(
        "follower-tried-again-all-the-time",
        "pauses between tries to follow the log do not grow",
        (
            Edit(
                "headwater/services/room_followers.py",
                "                failures += 1\n",
                "                failures = 0\n",
            ),
        ),
        ("tests/services/test_room_watermarks.py",),
    ),
    Bug(
        "nobody-is-a-token",
        "clients without a token count together for the bound of one",
        (
            Edit(
                "headwater/doors/realtime/hall.py",
                "(principal.database, principal.subject) if principal.subject else None",
                "(principal.database, principal.subject)",
            ),
        ),
        ("tests/doors/realtime/test_session.py::test_who_has_no_token_is_bounded_by_the_address_alone",),
    ),
    Bug(
        "room-let-in-before-it-is-open",
        "whoever comes while a room is being opened does not wait for that",
        (
            Edit(
                "headwater/services/rooms.py",
                "if live in self._opening:\n                await",
                "if live.users == 1:\n                await",
            ),
        ),
        ("tests/services/test_room_opening.py",),
    ),
    Bug(
        "switched-in-one-process",
        "whether rooms go through the log is looked at when a room is opened and never again",
        (Edit("headwater/services/rooms.py", "        self._look_later()\n", ""),),
        ("tests/services/test_room_watermarks.py",),
    ),
    Bug(
        "history-with-a-hole",
        "messages that are dropped while the history is read are passed over in silence",
        (
            Edit(
                "headwater/services/room_history.py",
                "return begin if begin > after + 1 else None",
                "return None",
            ),
        ),
        ("tests/doors/realtime/test_catching_up.py", "tests/services/test_room_history.py"),
    ),
    Bug(
        "dropped-room-as-it-was",
        "who joins a room that was dropped under others is told its offsets of before",
        (Edit("headwater/services/live_room.py", "is_another = self._is_deleted(outline)", "is_another = False"),),
        ("tests/doors/realtime/test_rooms.py::test_who_joins_a_room_that_was_dropped_under_others_finds_it_empty",),
    ),
    Bug(
        "cursors-kept",
        "a cursor that comes over the wire, or in a transaction, is kept",
        (
            Edit(
                "headwater/services/room_requests.py",
                "    if type == CURSOR:",
                '    if type == "":',
            ),
        ),
        ("tests/services/test_room_cursors.py",),
    ),
    Bug(
        "programs-pass-the-switch",
        "a program that has opened the store writes to the log while rooms are off it",
        (
            Edit(
                "headwater/services/rooms.py",
                "            look.result()",
                "            self._in_memory = frozenset()",
            ),
        ),
        ("tests/services/test_rooms_in_memory.py",),
    ),
    Bug(
        "members-steer-terminals",
        "what members say is printed as it is",
        (Edit("headwater/cli/rooms.py", 'print_line((f"{iso_time', 'print(*(f"{iso_time'),),
        ("tests/cli/test_foreign_texts.py",),
    ),
    Bug(
        "half-messages-held-without-end",
        "what has come of messages is held whatever room there is",
        (
            Edit(
                "headwater/doors/edge/websocket.py",
                "if not self._hold.fit(self._reader.held_bytes()):",
                "if self._hold.fit(0) is False:",
            ),
        ),
        ("tests/doors/test_arriving_messages.py",),
    ),
    Bug(
        "strangers-send-much",
        "who has not said who they are sends messages as large as anybody's",
        (
            Edit(
                "headwater/doors/realtime/session.py",
                "peer.hold_back(UNKNOWN_MESSAGE_BYTES_MAX)",
                "peer.hold_back(1 << 30)",
            ),
        ),
        ("tests/doors/test_arriving_messages.py",),
    ),
    Bug(
        "minute-whatever-is-set",
        "messages that programs say in rooms are kept for a minute, whatever the setting is",
        (Edit("headwater/services/room.py", "ttl_seconds = self._rooms.settings.message_ttl", "ttl_seconds = 60.0"),),
        ("tests/services/test_room_ttl.py",),
    ),
    Bug(
        "every-join-told-to-all",
        "whoever joins again and again is told to everybody as gone and come, each time",
        (Edit("headwater/doors/realtime/rooms.py", "stays = before is not None and ", "stays = before is False and "),),
        (
            "tests/doors/realtime/test_rooms.py::test_who_comes_again_without_leaving_begins_anew_and_nobody_hears_of_it",
        ),
    ),
    Bug(
        "few-sockets-pinged-at-every-tick",
        "where there are few WebSockets one is looked at with each tick, and cut off in the third",
        (
            Edit(
                "headwater/doors/edge/heartbeats.py",
                "now, self._due = divmod(self._due, 1.0)",
                "now, self._due = max(self._due, 1.0), 0.0",
            ),
        ),
        ("tests/doors/test_heartbeats.py",),
    ),
    Bug(
        "unread-socket-taken-for-dead",
        "a WebSocket that the server itself does not read is cut off because it is silent",
        (Edit("headwater/doors/edge/websocket.py", "self._heard or not self._transport.is_reading()", "self._heard"),),
        ("tests/doors/test_heartbeats.py",),
    ),
    Bug(
        "ping-never-answered-for",
        "a WebSocket that does not answer is asked again and again and never cut off",
        (Edit("headwater/doors/edge/websocket.py", "elif self._pinged:", "elif self._code:"),),
        ("tests/doors/test_heartbeats.py",),
    ),
    Bug(
        "reserved-bits-taken",
        "frames with reserved bits are read as if an extension had been agreed on",
        (Edit("headwater/doors/websocket.py", "if first & _RESERVED:", "if first & _RESERVED and not opcode:"),),
        ("tests/doors/realtime/test_conformance.py",),
    ),
    Bug(
        "asleep-after-the-clock",
        "a worker that waits for a time is not told that the clock was set",
        (
            Edit(
                "headwater/worker/worker.py",
                "        self._followers.on_clock_set.append(self._clock_set)\n",
                "        self._followers.on_clock_set.append(lambda by: None)\n",
            ),
            Edit(
                "headwater/worker/worker.py",
                "            self._followers.on_clock_set.remove(self._clock_set)\n",
                "",
            ),
        ),
        ("tests/faults/test_sleepers.py::test_a_worker_runs_a_job_that_waits_when_it_is_due",),
    ),
    Bug(
        "parked-after-the-clock",
        "a pop that waits for a time is not told that the clock was set",
        (Edit(INTENTIONS, "        followers.on_clock_set.append(self._clock_set)\n", ""),),
        ("tests/faults/test_sleepers.py::test_a_pop_that_waits_gets_a_message_for_later_when_it_is_due",),
    ),
    Bug(
        "two-names",
        "a file is opened though somebody has it open by another name",
        (Edit(SHARED_FILE, "            check_one_name(self._path)\n", "            pass\n"),),
        ("tests/stores/test_one_name.py",),
    ),
    Bug(
        "dropped-under-its-dependents",
        "a job that an unfinished one depends on is forgotten by its age, and its result with it",
        (
            Edit(
                "headwater/stores/sqlite/sql/jobs.sql",
                """u.until > ?6))
  AND NOT EXISTS (
    SELECT 1 FROM hw_job_dependencies d JOIN hw_jobs j ON j.number = d.job
    WHERE d.needs = hw_jobs.number AND d.met = 1 AND j.state NOT IN ('completed', 'cancelled'))
""",
                "u.until > ?6))\n",
            ),
        ),
        (JOB_KIN,),
    ),
    Bug(
        "purged-under-its-dependents",
        "a job that an unfinished one depends on is dropped by its id",
        (
            Edit(
                "headwater/stores/tables/job_drops.py",
                "        needed = self._dependents.needed(chosen)\n",
                "        needed: dict[int, str] = {}\n",
            ),
        ),
        (JOB_KIN,),
    ),
    Bug(
        "result-over-before-it-is-read",
        "a result whose time is over is dropped though a job is to get it",
        (
            Edit(
                "headwater/stores/sqlite/sql/jobs.sql",
                "WHERE d.needs = n.number AND d.met = 1",
                "WHERE d.needs = -n.number AND d.met = 1",
            ),
        ),
        (f"{JOB_TIES}::test_a_result_outlives_its_time_while_a_job_that_may_still_run_is_to_get_it",),
    ),
    Bug(
        "orphan-armed-again",
        "a job comes back to wait for ever for one that was dropped",
        (
            Edit(
                JOBS,
                "        orphaned = self._dependents.orphaned(chosen)\n",
                "        orphaned: set[int] = set()\n",
            ),
        ),
        (JOB_KIN,),
    ),
    Bug(
        "replaced-with-its-dependents",
        "whoever waits for a job that is replaced is cancelled with it",
        (
            Edit(
                "headwater/stores/tables/job_intake.py",
                "                self._dependents.move(row.number, places[row.id])\n",
                "                pass\n",
            ),
        ),
        ("tests/contracts/test_job_ties.py",),
    ),
    Bug(
        "parked-past-new-rules",
        "a pop that waits is served though access has changed since it came",
        (Edit(INTENTIONS, "        if version != self._access_version:\n", "        if False:\n"),),
        ("tests/doors/access/test_withdrawn.py",),
    ),
    Bug(
        "waited-past-new-rules",
        "what was waited for is handed over by what was theirs when they began to wait",
        (Edit(RECEPTION, "            for queue in used:\n", "            for queue in ():\n"),),
        ("tests/doors/access/test_withdrawn.py",),
    ),
    Bug(
        "everybodys-end",
        "readers of the log are told where it ends for everybody",
        (
            Edit(
                "headwater/doors/native/log.py",
                "    return await reader.end_of(principal.database, principal.reach)\n",
                "    return (await reader.span())[1]\n",
            ),
        ),
        ("tests/doors/access/test_influence.py",),
    ),
    Bug(
        "replica-goes-on-in-another-log",
        "after a store was put back from a copy, replicas are never told of what is written up to their place",
        (Edit(REPLICATION, "        if self._is_of_another_log(", "        if False and self._is_of_another_log("),),
        (f"{OTHER_LOGS}::test_a_checkpoint_ahead_of_the_log_begins_anew_and_says_so",),
    ),
    Bug(
        "made-up-checkpoint-asks-for-a-document",
        "whoever makes a checkpoint up learns whether there is a document that they may not read",
        (
            Edit(
                REPLICATION,
                "self._permit is not None and (found is None or not self._may_read(found))",
                "self._permit is not None and found is None",
            ),
        ),
        (f"{OTHER_LOGS}::test_of_documents_that_may_not_be_read_a_made_up_checkpoint_learns_nothing",),
    ),
    Bug(
        "resume-in-a-restored-store",
        "a client goes on in a store that was restored as if nothing had happened",
        (
            Edit(
                "headwater/doors/realtime/documents.py",
                "Said(about.reading, about.identity)",
                'Said(about.reading, "")',
            ),
        ),
        (f"{OTHER_LOGS}::test_a_resume_in_a_store_that_was_restored_begins_anew",),
    ),
    Bug(
        "claims-of-nobody",
        "a query over HTTP that speaks of who asks is refused",
        (
            Edit(
                "headwater/doors/native/documents.py", "claims_text() if speaks_of_who_asks(query) else", "database and"
            ),
        ),
        (f"{WHO_ASKS}::test_a_query_may_speak_of_who_asks_over_every_route",),
    ),
    Bug(
        "caller-brings-claims",
        "a caller says over our own wire who they are",
        (Edit("headwater/services/wire_forms.py", '"permit", "claims"})', '"permit"})'),),
        (f"{WHO_ASKS}::test_a_caller_cannot_bring_claims",),
    ),
    Bug(
        "names-of-no-text-are-one",
        "all names in a path that are no UTF-8 are the same name",
        (
            Edit(
                "headwater/doors/wire.py",
                '.encode("latin-1")).decode()',
                '.encode("latin-1")).decode(errors="replace")',
            ),
        ),
        ("tests/doors/test_paths.py::test_documents_whose_ids_are_no_utf_8_are_not_written",),
    ),
    Bug(
        "update-tells-everything",
        "a token for writing alone reads what others wrote in the answer to an update",
        (
            Edit(
                "headwater/doors/native/documents.py", "        return written.receipt()\n", "        return written\n"
            ),
        ),
        ("tests/doors/test_documents.py::test_an_update_tells_what_others_wrote_only_to_who_may_read",),
    ),
    Bug(
        "quick-query-of-large-documents",
        "a query reads megabytes while everybody waits",
        (
            Edit(
                "headwater/stores/tables/document_answers.py",
                "            if self._rows < 0 or self._bytes < 0:\n",
                "            if self._rows < 0:\n",
            ),
        ),
        (f"{PLANS}::test_large_documents_are_not_read_while_everybody_waits",),
    ),
    Bug(
        "indexes-known-for-ever",
        "a process goes on along an index that another one has dropped, and finds nothing",
        (
            Edit(
                "headwater/stores/tables/document_answers.py",
                "if version != self._version or len(self._fields)",
                "if len(self._fields)",
            ),
        ),
        ("tests/contracts/test_documents.py::test_an_index_that_another_process_drops_is_not_used_here",),
    ),
    Bug(
        "quick-query-that-scans",
        "a query looks at all documents while everybody waits",
        (
            Edit(
                "headwater/stores/tables/document_answers.py",
                "if not plan.field or len(plan.ranges) > QUICK_RANGES:",
                "if len(plan.ranges) > QUICK_RANGES:",
            ),
        ),
        (f"{PLANS}::test_what_may_take_long_is_not_answered_while_everybody_waits",),
    ),
    Bug(
        "pop-of-any-size",
        "a pop brings more than an answer can carry",
        (Edit("headwater/stores/tables/gathering.py", "    if whole > found.room:\n", "    if whole < 0:\n"),),
        ("tests/contracts/test_bytes_of_answers.py::test_a_pop_brings_as_many_as_it_may_and_the_next_one_goes_on",),
    ),
    Bug(
        "turns-at-a-file-that-was-not-opened",
        "a scratch file that could not be opened anew is taken for one that was",
        (
            Edit(
                "headwater/stores/sqlite/scratch_file.py",
                "self._last = None, None\n        with translated",
                "self._last = None, None\n        self.turn = OwnTurn()\n        with translated",
            ),
        ),
        ("tests/stores/test_scratch_file.py::test_a_store_that_cannot_be_opened_anew_refuses_all_until_it_can",),
    ),
    Bug(
        "clock-of-the-machine",
        "who shares a database goes by the clock of its machine",
        (
            Edit(
                "headwater/clock.py",
                "        self._ahead = min(max(known, least), most)\n",
                "        self._ahead = self._machine.now() - heard\n",
            ),
        ),
        ("tests/faults/test_clocks_apart.py::test_what_one_machine_has_leased_is_not_leased_by_another",),
    ),
    Bug(
        "retention-that-waits-for-a-clock-ahead",
        "a record of a clock that was ahead keeps all that is behind it",
        (Edit(RETENTION, "if written_at > now + CLOCK_TOLERANCE:", "if written_at > now + now:"),),
        (
            "tests/contracts/test_retention.py::"
            "test_a_record_of_a_clock_that_was_ahead_keeps_nothing_behind_it_from_being_dropped",
        ),
    ),
    Bug(
        "cut-answer-looks-whole",
        "an answer in pieces that may not go on is ended as if it were whole",
        (Edit(RECEPTION, "                    raise BrokenOff(why)\n", "                    return\n"),),
        ("tests/doors/test_answers_broken_off.py",),
    ),
    Bug(
        "system-rows-past-the-rules",
        "access rules hold for system collections in live queries alone",
        (
            Edit(
                "headwater/services/system_collections.py",
                " and filters.may_read(permit, row)",
                " and permit is permit",
            ),
        ),
        ("tests/client/test_ruled_system_collections.py",),
    ),
    Bug(
        "index-that-stays-half-made",
        "an index that a value is too long for stays, and is never ready",
        (
            Edit(
                "headwater/stores/tables/document_indexes.py",
                "                    self._take_back(operation.database, row)\n",
                "",
            ),
        ),
        ("tests/contracts/test_documents.py::test_an_index_that_a_value_is_too_long_for_is_taken_back",),
    ),
    Bug(
        "cursor-before-the-range",
        "a cursor that lies before what a filter asks for is taken to lie behind it",
        (
            Edit(
                "headwater/stores/tables/document_answers.py",
                "if not one.is_passed(key, back=plan.back)",
                "if one.holds(key)",
            ),
        ),
        ("tests/contracts/test_documents.py::test_a_cursor_of_any_filter_means_the_same_with_an_index",),
    ),
    Bug(
        "times-as-commits-began",
        "a segment has the time at which its commit began to wait for its turn, before that of others before it",
        (Edit(SEGMENTS, "return max(now, self.latest)", "return now"),),
        ("tests/contracts/test_seek.py::test_a_time_is_found_although_commits_of_another_began_earlier",),
    ),
    Bug(
        "lost-where-nobody-has-been",
        "what retention drops in a partition that a group has not met is not told as lost",
        (Edit(RETENTION, "            self._meet_partition(queue, partition_id, now)\n", ""),),
        ("tests/contracts/test_retention.py::test_what_a_group_loses_in_partitions_that_it_has_not_met_is_told",),
    ),
    Bug(
        "one-id-twice-in-a-lease",
        "a lease has two messages of one transaction id, and an ack by id settles the other one",
        (Edit("headwater/stores/tables/gathering.py", "if identity in found.ids:", "if identity in found.offsets:"),),
        (
            "tests/contracts/test_leases.py::test_a_lease_never_has_one_transaction_id_twice",
            "tests/doors/queen/test_queues.py::test_a_message_whose_id_was_pushed_before_is_not_settled_in_its_place",
        ),
    ),
    Bug(
        "settled-again-by-id",
        "a report by transaction id is taken for a record that was settled before",
        (Edit("headwater/stores/tables/reports.py", "if offset in left and record", "if record"),),
        ("tests/contracts/test_leases.py::test_a_settled_record_is_not_taken_for_a_later_one_of_its_id",),
    ),
    Bug(
        "transactions-uncounted",
        "what a transaction pushes and settles is in no counter",
        (
            Edit(
                "headwater/doors/work.py",
                "isinstance(operation, Transaction) and isinstance(result, Transacted)",
                "isinstance(operation, Transaction) and isinstance(result, Acked)",
            ),
        ),
        ("tests/doors/test_operation.py::test_metrics_count_what_transactions_do",),
    ),
    Bug(
        "pushed-from-another-loop",
        "a push from another event loop takes effect and raises",
        (Edit(COMMITTER, "        self.home.check()\n", ""),),
        ("tests/interfaces/test_wrong_loops.py",),
    ),
    Bug(
        "matching-in-one-go",
        "all filters are tried with a change in one turn of the event loop, however long that takes",
        (Edit(TURNS, "        if not self.fits(cost):\n", "        if self._left < 0:\n"),),
        (f"{COSTLY}::test_the_loop_turns_while_a_change_is_matched",),
    ),
    Bug(
        "turns-by-who-came-first",
        "long work goes on until it is done, and other databases wait",
        (
            Edit(
                TURNS,
                "                self._lines[database] = line\n",
                "                self._lines = {database: line, **self._lines}\n",
            ),
        ),
        (f"{COSTLY}::test_turns_go_around_between_databases",),
    ),
    Bug(
        "joined-while-matched",
        "who begins to follow while a commit is looked at is not told of it",
        (Edit(FEED, "while new := matcher.take_new():", "while new := ():"),),
        (f"{COSTLY}::test_who_joins_while_a_commit_is_matched_is_told_of_it",),
    ),
    Bug(
        "attachments-that-are-dropped",
        "a push with attachments is answered as taken, and they are kept nowhere",
        (Edit("headwater/services/document_checks.py", 'if state.get("_attachments"):', "if False:"),),
        ("tests/doors/test_documents.py::test_attachments_of_a_replica_are_refused_and_not_dropped",),
    ),
    Bug(
        "claims-of-before",
        "a filter that speaks of who asks goes on with what was known of them before",
        (Edit(SUBSCRIPTIONS, 'if "auth" not in self.filter or not', "if self.filter or not"),),
        ("tests/doors/realtime/test_claims_that_change.py",),
    ),
    Bug(
        "pages-by-rows-alone",
        "one answer of a query looks at thousands of documents, however large, and all others wait",
        (
            Edit(
                "headwater/stores/tables/document_answers.py",
                "self.scanned >= SCANNED_MAX or self._cost >= LOOKED_COST_MAX",
                "self.scanned >= SCANNED_MAX",
            ),
        ),
        ("tests/stores/test_document_plans.py::test_one_answer_looks_at_so_much_and_others_come_in_between",),
    ),
    Bug(
        "reads-by-who-came-first",
        "the questions of one database are all answered before those of another",
        (
            Edit(
                "headwater/stores/sqlite/reader_thread.py",
                "                self._lines[name] = line\n",
                "                self._lines = {name: line, **self._lines}\n",
            ),
        ),
        ("tests/stores/test_reader_thread.py::test_databases_are_answered_in_turn",),
    ),
    Bug(
        "clients-that-take-nothing-stay",
        "what waits for clients that never read keeps the server without room, for as long as they speak",
        (
            Edit(
                "headwater/doors/realtime/hall.py",
                "if before is not None and waiting > before * TAKEN_SHARE:",
                "if before is not None and waiting > before:",
            ),
        ),
        ("tests/doors/realtime/test_flow.py::test_at_the_hard_mark_who_takes_nothing_is_let_go_whatever_they_say",),
    ),
    Bug(
        "true-is-1",
        "states of replicas are compared as Python does: true is 1, and another client's write is lost",
        (
            Edit(
                "headwater/model/json_values.py",
                "return one == other and _has_same_truths(one, other)",
                "return one == other",
            ),
        ),
        ("tests/doors/test_documents.py::test_true_and_1_are_two_states",),
    ),
    Bug(
        "resume-key-of-the-first-subscriber",
        "a backup of before the first subscription has no key: tokens of later pass for forged ones in it",
        (Edit(APP, "    await door.site.subscriptions.tokens.prepare()\n", ""),),
        ("tests/doors/realtime/test_places_of_another_log.py",),
    ),
    Bug(
        "audit-of-who-it-is-now",
        "the end of a subscription is written to the audit of whoever the connection is known as by then",
        (
            Edit(
                "headwater/doors/realtime/documents.py",
                'watch.note(follower.database, "ended", **about)',
                'watch.note(session.database, "ended", **about)',
            ),
        ),
        ("tests/doors/realtime/test_live_watch.py",),
    ),
    Bug(
        "audit-that-is-not-waited-for",
        "a server that stops closes its store before the audit has the last second",
        (Edit(APP, "            await finish()\n", "            pass\n"),),
        ("tests/doors/realtime/test_live_watch.py",),
    ),
    Bug(
        "cursors-of-other-queries",
        "a cursor of another collection or order is read as if it were of this one, and documents are left out",
        (Edit("headwater/model/document_order.py", "if found_mark != mark or len(", "if len("),),
        ("tests/doors/test_documents.py::test_a_cursor_is_good_for_its_collection_and_order_alone",),
    ),
    Bug(
        "tombstones-of-others",
        "a push that makes a document is told that there was one, although it was another's",
        (
            Edit(
                "headwater/stores/tables/documents.py",
                "if before is not None and not is_new_to_them and (",
                "if before is not None and (",
            ),
        ),
        ("tests/doors/test_document_rules.py",),
    ),
    Bug(
        "conditions-in-headers-passed-over",
        "a write with If-Match in its headers is done whatever is there",
        (
            Edit(
                "headwater/doors/documents/handlers.py",
                "if not CONDITIONAL_HEADERS.isdisjoint(request.headers):",
                "if False:",
            ),
        ),
        ("tests/doors/test_documents.py::test_conditions_in_headers_are_refused_and_not_passed_over",),
    ),
    Bug(
        "the-end-of-what-was-never-shown",
        "a document that was gone before its page of a snapshot was read is told as deleted",
        (
            Edit(FEED, "max(page.through, self._documents.get(id, 0))", "self._documents.get(id, 0)"),
            Edit(FEED, "return is_in_doubt and id not in (page.shown or ())", "return False"),
        ),
        (f"{LIVE}::test_what_is_gone_before_its_page_of_a_snapshot_is_read_is_not_told",),
    ),
    Bug(
        "who-follows-ends-with-an-outage",
        "whoever follows the log ends with an error when the server restarts while something comes",
        (
            Edit(
                "headwater/services/follow.py",
                "            except OUTAGES:\n                if wait_seconds is not None:\n",
                "            except OUTAGES:\n                if True:\n",
            ),
        ),
        ("tests/faults/test_postgres_outages.py::test_who_follows_goes_on_where_they_were",),
    ),
    Bug(
        "tail-waits-for-the-next-commit-after-an-outage",
        "what was committed before an outage is told when somebody else commits, if ever",
        (
            Edit(
                TAIL,
                "            self._look_later = asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._look)\n",
                "            return\n",
            ),
        ),
        (
            "tests/log/test_tail.py::"
            "test_after_an_outage_the_tail_goes_on_without_another_wake_up_and_says_nothing_of_its_own",
        ),
    ),
    Bug(
        "nobody-tells-of-an-outage-while-deaf",
        "a process that cannot listen again waits for its server without a word",
        (
            Edit(
                "headwater/stores/postgres/notices.py",
                "        with self._outage.watched():\n",
                "        if True:\n",
            ),
        ),
        ("tests/faults/test_postgres_outages.py::test_who_cannot_listen_tells_of_the_outage",),
    ),
    Bug(
        "every-chore-tells-of-an-outage",
        "an outage of the server is a traceback for every chore that meets it",
        (Edit("headwater/housekeeping/keeper.py", "except (StoreFull, *OUTAGES):", "except StoreFull:"),),
        ("tests/faults/test_postgres_outages.py::test_an_outage_is_two_lines_in_the_log_and_no_traceback",),
    ),
    Bug(
        "a-refused-capture-stays-listed",
        "a capture that its source refused is listed as one that copies, for ever",
        (
            Edit(
                "headwater/capture/follower.py",
                "            if not error.retryable:\n                await self._take_back()\n            raise\n",
                "            raise\n",
            ),
        ),
        ("tests/capture/test_commands.py::test_a_capture_that_is_refused_says_why_leaves_nothing_and_can_begin_later",),
    ),
    Bug(
        "older-tables-are-a-matter-of-rights",
        "who opens a store before its owner has brought it up to date is told of a table that is not theirs",
        (
            Edit(
                "headwater/stores/postgres/migrate.py",
                "        if not version:\n            raise\n",
                "        raise\n",
            ),
        ),
        (
            "tests/stores/test_postgres_operation.py::"
            "test_a_role_that_comes_before_the_owner_with_a_new_version_is_told_who_has_to_open_the_store",
        ),
    ),
    Bug(
        "listener-comes-back-to-any-store",
        "who only listens goes on behind its last event in a store that was restored, and documents are missed",
        (Edit("headwater/services/subscriptions.py", 'said.identity not in ("", now.identity) or not', "not"),),
        ("tests/doors/realtime/test_places_of_another_log.py",),
    ),
    Bug(
        "job-events-of-any-store",
        "who follows jobs goes on behind an event of before a restore, and changes are missed",
        (Edit("headwater/doors/jobs/events.py", 'after.identity not in ("", identity)', "False"),),
        ("tests/doors/test_jobs.py::test_whoever_comes_back_with_a_place_of_another_store_begins_anew",),
    ),
    Bug(
        "gone-between-two-answers",
        "a document that was gone before the second answer of its page is told as deleted",
        (Edit(FEED, "return is_in_doubt and id not in (page.shown or ())", "return False"),),
        (f"{LIVE}::test_what_is_gone_between_the_answers_of_one_page_is_not_told",),
    ),
    Bug(
        "bucket-gap-is-the-end",
        "entries that were deleted many at a time are taken for the end of the log, and it is written over",
        (Edit("headwater/stores/bucket/looking.py", "not (is_thorough and _prove(", "not (False and _prove("),),
        ("tests/stores/bucket/test_store.py",),
    ),
    Bug(
        "receipts-of-one-lane-by-kind",
        "a lane that gets a whole push has the messages with ids first, and the receipts go by the order of the push",
        (Edit("headwater/stores/tables/pushes.py", "            places.sort()\n", "            pass\n"),),
        (
            "tests/contracts/test_lanes.py::test_every_message_of_a_push_is_told_its_own_place",
            "tests/client/test_verbs.py::"
            "test_each_receipt_of_a_push_with_and_without_transaction_ids_is_of_its_own_message",
        ),
    ),
    Bug(
        "waiting-by-position-alone",
        "what a group acked out of order waits for it, and takes room",
        (
            Edit(
                "headwater/stores/sqlite/sql/segments.sql",
                "CASE WHEN c.settled IS NULL THEN 0 ELSE",
                "CASE WHEN true THEN 0 ELSE",
            ),
        ),
        ("tests/contracts/test_status.py",),
    ),
    Bug(
        "a-refused-pop-leaves-its-group",
        "a pop without the key is refused, and its group stays",
        (Edit(POPS, "                    self._take_back(group)\n", "                    pass\n"),),
        ("tests/contracts/test_codec.py::test_a_pop_that_is_refused_for_want_of_the_key_leaves_no_group",),
    ),
    Bug(
        "changed-before-it-was-shown",
        "a change of a document that a snapshot did not show is told as one of a document that is known",
        (Edit(FEED, "return event if event.move is Move.ENTERED else event.entered()", "return event"),),
        (f"{LIVE}::test_what_is_gone_between_the_answers_of_one_page_is_not_told",),
    ),
    Bug(
        "bucket-base-cut-short",
        "a base that is cut short is gone on with: what is left of it is written over it",
        (Edit("headwater/stores/bucket/label.py", "if len(data) < whole:", "if False:"),),
        ("tests/stores/bucket/test_store.py::test_a_base_that_is_cut_short_is_told_and_nothing_is_written",),
    ),
    Bug(
        "handed-out-while-closing",
        "who begins to consume while the store is closed gets messages that nobody gives back",
        (Edit("headwater/services/holdings.py", "        self._is_closing = True\n", "        pass\n"),),
        ("tests/interfaces/test_closing.py::test_nothing_is_handed_out_once_all_that_is_held_was_given_back",),
    ),
    Bug(
        "closed-behind-cancelled-pops",
        "what comes for a pop that was cancelled finds the committer closed, and stays leased",
        (Edit(COMMITTER, "(self._closing and not is_late)", "self._closing"),),
        ("tests/log/test_committer.py::test_closing_waits_for_what_an_answer_makes_necessary_that_nobody_took",),
    ),
    Bug(
        "suspects-in-company",
        "calls that nobody knows the guilty one of run together when they come again, and are charged then",
        (
            Edit(
                "headwater/worker/functions.py",
                "if job.number not in self._suspects and not has_ended_a_process(job):",
                "if True:",
            ),
            Edit("headwater/worker/suspects.py", "SUSPICIONS_MAX = 5", "SUSPICIONS_MAX = 1"),
        ),
        (
            "tests/worker/test_loops.py::"
            "test_those_who_run_beside_one_that_ends_the_process_again_and_again_are_never_charged",
        ),
    ),
    Bug(
        "a-loop-of-low-numbers",
        "a function that closes low descriptors closes those of the event loop",
        (Edit("headwater/worker/runner_ends.py", "while number < wanted - 1:", "while False:"),),
        ("tests/worker/test_loops.py::test_low_descriptors_are_none_of_the_loop",),
    ),
    Bug(
        "a-listener-behind-a-gap",
        "who only listens is told of a gap and kept, and comes back with the place that had it",
        (
            Edit(
                "headwater/doors/realtime/session.py",
                "            self._peer.close(CloseCode.TRY_AGAIN_LATER, gap.event)",
                "            pass",
            ),
        ),
        (
            "tests/doors/realtime/test_listeners.py::"
            "test_a_listener_who_was_told_of_a_gap_comes_back_as_browsers_do_and_begins_anew",
        ),
    ),
    Bug(
        "a-place-before-the-beginning",
        "the first to follow a collection is told a place in the log from before it is followed",
        (Edit(FEED, "            while behind := await", "            while False and await"),),
        (f"{LIVE}::test_the_first_to_follow_a_collection_misses_nothing_that_is_written_while_they_begin",),
    ),
    Bug(
        "popped-before-its-acks",
        "a pop that is repeated with its key is answered before what goes with it, or is reported beside it, is done",
        (
            Edit(
                WRITER,
                "popped_before[index] = cast(KeptPop, before.answer)\n",
                "results[index] = self._popped_before(operation, before.answer, now, None)\n"
                "                    if results[index] is not None:\n"
                "                        applied[index] = None\n"
                "                        continue\n",
            ),
        ),
        ("tests/client/test_verbs.py::test_a_pop_hands_out_nothing_that_it_acks",),
    ),
    Bug(
        "auto-acked-beside-an-error",
        "what a pop with auto_ack takes is gone when a report that goes with it is refused",
        (Edit("headwater/services/queues.py", "if operation.auto_ack and reports:", "if False:"),),
        ("tests/client/test_verbs.py::test_a_lost_lease_is_told_before_an_auto_acked_message_is_taken",),
    ),
    Bug(
        "a-listener-that-is-cut-stays",
        "a listener that is cut off is waited for until it takes what is on its way, or its connection is given up",
        (Edit("headwater/doors/event_stream.py", "        self._let_go()\n", ""),),
        (
            "tests/doors/realtime/test_listeners.py::"
            "test_listeners_who_take_nothing_are_cut_off_when_there_is_no_room_for_others",
        ),
    ),
    Bug(
        "pressure-of-those-who-left",
        "what waited for clients that have left keeps the next ones out, until somebody stays",
        (
            Edit(
                "headwater/doors/realtime/hall.py",
                "            self.weigh()\n            for call in self.at_empty:",
                "            for call in self.at_empty:",
            ),
        ),
        ("tests/doors/realtime/test_flow.py::test_what_waited_for_those_who_have_left_keeps_nobody_out",),
    ),
    Bug(
        "a-stream-in-the-order-of-changes",
        "documents of a commit are told to a stream as they were changed, and its checkpoints skip those of other ids",
        (
            Edit(
                "headwater/doors/realtime/replica_streams.py",
                "in sorted(commit.items()):",
                "in commit.items():",
            ),
        ),
        (f"{LIVE}::test_a_stream_that_is_cut_within_a_commit_goes_on_with_the_rest_of_it",),
    ),
    Bug(
        "a-stream-that-had-the-whole-commit",
        "behind a document of a commit a replica counts as one that was told of all that left with it",
        (
            Edit(
                REPLICATION,
                "None if self._permit is None else Lsn(document.lsn - 1)",
                "None if self._permit is None else document.lsn",
            ),
        ),
        (
            "tests/doors/realtime/test_document_rules.py::"
            "test_a_stream_that_is_cut_within_a_commit_tells_what_left_with_it",
        ),
    ),
    Bug(
        "late-words-of-anybody",
        "what came back is taken as completed by who held it before, though another has leased it meanwhile",
        (
            Edit(
                CURSOR,
                "    if token != cursor.token or cursor.lease_until is not None:\n        return []\n",
                "    if token is None:\n        return []\n",
            ),
        ),
        (
            "tests/contracts/test_queen_reports.py::test_no_late_word_counts_once_another_has_leased_any_of_it",
            "tests/contracts/test_state_machine.py",
        ),
    ),
    Bug(
        "late-words-after-the-time",
        "what a lease that ran out held is taken as completed once somebody has looked, and not before",
        (Edit(CURSOR, "    return msgspec.structs.replace(cursor, leased_to=0)", "    return cursor"),),
        ("tests/contracts/test_queen_reports.py::test_no_late_word_counts_once_the_lease_ran_out",),
    ),
    Bug(
        "no-late-words",
        "a client that goes on with a batch of which one message failed does the rest twice",
        (Edit("headwater/doors/queen/reports.py", "counts_late=True", "counts_late=False"),),
        (f"{FAILING_BATCHES}::test_the_older_client_handles_each_of_a_batch_once_though_one_of_them_failed",),
    ),
    Bug(
        "the-rest-stays-leased",
        "a message that fails leaves the rest of its batch to a client that has left it alone",
        (Edit("headwater/stores/tables/reports.py", "        if operation.releases_rest:\n", "        if False:\n"),),
        (f"{FAILING_BATCHES}::test_a_message_that_fails_gives_the_rest_of_its_lease_back",),
    ),
    Bug(
        "a-transaction-without-its-gate",
        "a transaction is done without the parts that nobody knows",
        (
            Edit(
                "headwater/doors/queen/shapes.py",
                'class TransactionBody(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):',
                'class TransactionBody(Struct, frozen=True, rename="camel"):',
            ),
        ),
        (
            "tests/doors/queen/test_unknown_fields.py::"
            "test_a_transaction_with_a_part_that_is_not_done_here_is_refused_as_a_whole",
        ),
    ),
    Bug(
        "a-copy-of-the-loop",
        "a forked child hands its calls to the copy of its parent's event loop, and waits for ever",
        (Edit("headwater/services/bridge.py", "self._origin.check(self._name, self._line)", "pass"),),
        (
            "tests/interfaces/test_job_app.py::test_a_child_of_an_open_app_is_told_to_open_it_anew",
            "tests/interfaces/test_job_app.py::"
            "test_a_job_that_a_child_of_a_runner_has_from_its_parent_is_not_waited_for",
        ),
    ),
    Bug(
        "charged-for-what-others-left",
        "a call that is alone in its process when that ends is charged, whoever has run there before",
        (Edit("headwater/worker/runner_process.py", "self._has_served = True", "pass"),),
        ("tests/worker/test_loops.py::test_who_runs_alone_behind_others_is_not_charged_for_what_they_left",),
    ),
    Bug(
        "an-offender-in-company",
        "one that is known to end its process runs beside others again at each attempt",
        (
            Edit("headwater/worker/call_reports.py", "if death.alone or number in death.culprits:", "if False:"),
            Edit("headwater/worker/functions.py", " and not has_ended_a_process(job)", ""),
        ),
        ("tests/worker/test_loops.py::test_one_that_has_ended_its_process_runs_apart_from_then_on",),
    ),
    Bug(
        "a-start-before-its-turn",
        "async calls count as started when their loop is handed them, and not when it comes to them",
        (
            Edit(
                "headwater/worker/async_calls.py",
                "        self._tell(Begun(",
                "        self._ends.starts.mark(run.slot, run.number, run.about.token)\n        self._tell(Begun(",
            ),
        ),
        ("tests/worker/test_loops.py::test_what_the_loop_has_not_come_to_is_not_started[die_politely]",),
    ),
    Bug(
        "a-lock-from-before-the-fork",
        "a forked child waits for a lock that a thread of its parent had",
        (Edit("headwater/forks.py", "            lock.renew()", "            pass"),),
        (
            "tests/worker/test_calls.py::"
            "test_a_child_that_a_function_forks_speaks_whatever_the_threads_of_its_parent_do",
        ),
    ),
    Bug(
        "forked-in-the-middle",
        "a fork comes into the middle of a write, and its child takes the write lock for held",
        (Edit("headwater/forks.py", "        self._held = list(_guards)\n", "        self._held = []\n"),),
        ("tests/interfaces/test_opening.py::test_a_fork_does_not_come_into_the_middle_of_a_write",),
    ),
    Bug(
        "a-child-without-locks",
        "a forked child opens the file of its parent, and has none of the locks that it takes itself to have",
        (Edit("headwater/stores/sqlite/inherited.py", "self._inherited |= set(", "_ = set("),),
        (
            "tests/interfaces/test_opening.py::"
            "test_a_fork_may_open_a_client_of_its_own_and_no_store_that_its_parent_has_open",
        ),
    ),
    Bug(
        "a-lease-in-several-partitions-lost-in-one",
        "a lease over several partitions is not extended any more once all of one is reported",
        (Edit("headwater/doors/queen/reports.py", "passes_reported=len(leases) > 1", "passes_reported=False"),),
        (f"{FAILING_BATCHES}::test_a_lease_over_two_partitions_is_kept_in_the_one_that_is_left",),
    ),
    Bug(
        "owed-to-a-lost-connection",
        "what a drain has to drop is asked of the connection that was lost, again and again",
        (Edit("headwater/stores/outbox/table.py", '        """\n        self._reconnect()\n', '        """\n'),),
        (
            "tests/interfaces/test_staging_on_a_server.py::"
            "test_a_drain_that_loses_its_connection_behind_a_push_drops_what_is_pushed_later",
        ),
    ),
]
