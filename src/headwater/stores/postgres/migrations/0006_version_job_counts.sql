-- The same for jobs: what every claim looks at first, and what every commit counts.

-- No job of a lane is pending before this place, by priority and then by number: claims begin here, past the jobs of before.
CREATE TABLE hw_job_floors (
    queue_id int8 NOT NULL,
    lane     int8 NOT NULL,
    version  int8 NOT NULL,
    priority int8 NOT NULL,
    number   int8 NOT NULL,
    PRIMARY KEY (queue_id, lane, version)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Under the append lock, by whoever has found this job to be the first.
CREATE PROCEDURE hw_raise_job_floor(of_queue int8, of_lane int8, first_priority int8, first_number int8) LANGUAGE plpgsql AS $$
BEGIN
    UPDATE hw_job_floors SET priority = first_priority, number = first_number, version = version + 1
    WHERE queue_id = of_queue AND lane = of_lane AND version = (
        SELECT f.version FROM hw_job_floors f WHERE f.queue_id = of_queue AND f.lane = of_lane
        ORDER BY f.version DESC LIMIT 1);
    IF NOT FOUND THEN
        INSERT INTO hw_job_floors (queue_id, lane, version, priority, number)
        VALUES (of_queue, of_lane, 0, first_priority, first_number);
    END IF;
END $$;

-- Whatever becomes pending before the floor lowers it. New jobs have higher numbers than all others, and floors are never
-- of a priority below 0: of the new ones only those with a priority can come before.
CREATE FUNCTION hw_lower_job_floor() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT (-NEW.priority, NEW.number) < (-f.priority, f.number) FROM hw_job_floors f
        WHERE f.queue_id = NEW.queue_id AND f.lane = NEW.lane ORDER BY f.version DESC LIMIT 1) THEN
        CALL hw_raise_job_floor(NEW.queue_id, NEW.lane, NEW.priority, NEW.number);
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER hw_lower_job_floor_for_new BEFORE INSERT ON hw_jobs
FOR EACH ROW WHEN (NEW.state = 'pending' AND NEW.priority > 0) EXECUTE FUNCTION hw_lower_job_floor();

CREATE TRIGGER hw_lower_job_floor BEFORE UPDATE ON hw_jobs
FOR EACH ROW WHEN (NEW.state = 'pending' AND (OLD.state <> 'pending' OR OLD.lane <> NEW.lane
    OR OLD.queue_id <> NEW.queue_id OR OLD.priority <> NEW.priority)) EXECUTE FUNCTION hw_lower_job_floor();

CREATE FUNCTION hw_drop_job_floor() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM hw_job_floors WHERE queue_id = OLD.queue_id AND lane = OLD.id;
    RETURN NULL;
END $$;

CREATE TRIGGER hw_drop_job_floor AFTER DELETE ON hw_job_lanes FOR EACH ROW EXECUTE FUNCTION hw_drop_job_floor();

-- In the place of hw_job_counts and hw_job_minutes, whose keys servers of before need as they are.
CREATE TABLE hw_job_tallies (
    queue_id int8 NOT NULL,
    state    text COLLATE "C" NOT NULL,
    version  int8 NOT NULL DEFAULT 0,
    count    int8 NOT NULL,
    PRIMARY KEY (queue_id, state, version)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE hw_job_minute_tallies (
    queue_id   int8 NOT NULL,
    minute     int8 NOT NULL,
    version    int8 NOT NULL DEFAULT 0,
    enqueued   int8 NOT NULL DEFAULT 0,
    completed  int8 NOT NULL DEFAULT 0,
    failed     int8 NOT NULL DEFAULT 0,
    dead       int8 NOT NULL DEFAULT 0,
    run_micros int8 NOT NULL DEFAULT 0,
    PRIMARY KEY (queue_id, minute, version)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

INSERT INTO hw_job_tallies (queue_id, state, count) SELECT queue_id, state, count FROM hw_job_counts;
INSERT INTO hw_job_minute_tallies (queue_id, minute, enqueued, completed, failed, dead, run_micros)
SELECT queue_id, minute, enqueued, completed, failed, dead, run_micros FROM hw_job_minutes;

CREATE PROCEDURE hw_count_jobs(of_queue int8, in_state text, more int8) LANGUAGE plpgsql AS $$
BEGIN
    UPDATE hw_job_tallies SET count = count + more, version = version + 1
    WHERE queue_id = of_queue AND state = in_state AND version = (
        SELECT t.version FROM hw_job_tallies t WHERE t.queue_id = of_queue AND t.state = in_state
        ORDER BY t.version DESC LIMIT 1);
    IF NOT FOUND THEN
        INSERT INTO hw_job_tallies (queue_id, state, count) VALUES (of_queue, in_state, more);
    END IF;
END $$;

CREATE PROCEDURE hw_count_minute(of_queue int8, of_minute int8, more_enqueued int8, more_completed int8, more_failed int8,
                                more_dead int8, more_micros int8) LANGUAGE plpgsql AS $$
BEGIN
    UPDATE hw_job_minute_tallies SET version = version + 1, enqueued = enqueued + more_enqueued,
        completed = completed + more_completed, failed = failed + more_failed, dead = dead + more_dead,
        run_micros = run_micros + more_micros
    WHERE queue_id = of_queue AND minute = of_minute AND version = (
        SELECT t.version FROM hw_job_minute_tallies t WHERE t.queue_id = of_queue AND t.minute = of_minute
        ORDER BY t.version DESC LIMIT 1);
    IF NOT FOUND THEN
        INSERT INTO hw_job_minute_tallies (queue_id, minute, enqueued, completed, failed, dead, run_micros)
        VALUES (of_queue, of_minute, more_enqueued, more_completed, more_failed, more_dead, more_micros);
    END IF;
END $$;

-- What servers of before count is counted here as well. They do not see what newer ones count.
CREATE FUNCTION hw_follow_job_counts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    CALL hw_count_jobs(NEW.queue_id, NEW.state, NEW.count - CASE TG_OP WHEN 'UPDATE' THEN OLD.count ELSE 0 END);
    RETURN NULL;
END $$;

CREATE TRIGGER hw_follow_job_counts AFTER INSERT OR UPDATE ON hw_job_counts
FOR EACH ROW EXECUTE FUNCTION hw_follow_job_counts();

CREATE FUNCTION hw_follow_job_minutes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        CALL hw_count_minute(NEW.queue_id, NEW.minute, NEW.enqueued, NEW.completed, NEW.failed, NEW.dead, NEW.run_micros);
    ELSE
        CALL hw_count_minute(NEW.queue_id, NEW.minute, NEW.enqueued - OLD.enqueued, NEW.completed - OLD.completed,
            NEW.failed - OLD.failed, NEW.dead - OLD.dead, NEW.run_micros - OLD.run_micros);
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER hw_follow_job_minutes AFTER INSERT OR UPDATE ON hw_job_minutes
FOR EACH ROW EXECUTE FUNCTION hw_follow_job_minutes();
