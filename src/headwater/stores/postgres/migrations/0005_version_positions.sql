-- A row that is changed all the time leaves its dead versions behind, and as long as anybody has a transaction open they
-- are walked over by whoever looks the row up. With a number that rises as the last column of the key, the living one is
-- the first that is found. Servers of before change rows without raising it, which is as good.
ALTER TABLE hw_cursors ADD COLUMN version int8 NOT NULL DEFAULT 0;
ALTER TABLE hw_cursors DROP CONSTRAINT hw_cursors_pkey, ADD PRIMARY KEY (group_id, partition_id, version);

-- Where nothing lives among the times at which the partitions of a group are ready: before `ready_at`, and between `gap_from`
-- and `gap_to`, where the ends of leases lie that were given back long before. The index by time is read around it.
CREATE TABLE hw_ready_floors (
    group_id int8 NOT NULL REFERENCES hw_groups ON DELETE CASCADE,
    version  int8 NOT NULL,
    ready_at int8 NOT NULL,
    gap_from int8 NOT NULL,
    gap_to   int8 NOT NULL,
    PRIMARY KEY (group_id, version)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE PROCEDURE hw_set_ready_floor(of_group int8, first_at int8, new_from int8, new_to int8) LANGUAGE plpgsql AS $$
BEGIN
    UPDATE hw_ready_floors SET ready_at = first_at, gap_from = new_from, gap_to = new_to, version = version + 1
    WHERE group_id = of_group AND version = (
        SELECT f.version FROM hw_ready_floors f WHERE f.group_id = of_group ORDER BY f.version DESC LIMIT 1);
    IF NOT FOUND THEN
        INSERT INTO hw_ready_floors (group_id, version, ready_at, gap_from, gap_to)
        VALUES (of_group, 0, first_at, new_from, new_to);
    END IF;
END $$;

-- Under the append lock, by whoever has found nothing that is ready before `first_at`. What becomes ready within the next
-- second is left out of the gap: that is where pushes and acks write.
CREATE PROCEDURE hw_raise_ready_floor(of_group int8, first_at int8, seen_at int8) LANGUAGE plpgsql AS $$
DECLARE
    soon int8 := seen_at + 1000000;
    known record;
    next_at int8;
BEGIN
    SELECT gap_from, gap_to INTO known FROM hw_ready_floors WHERE group_id = of_group ORDER BY version DESC LIMIT 1;
    SELECT min(ready_at) INTO next_at FROM hw_cursors WHERE group_id = of_group AND ready_at > soon
        AND ready_at >= CASE WHEN known.gap_from <= soon THEN known.gap_to ELSE 0 END;
    CALL hw_set_ready_floor(of_group, first_at, soon, coalesce(next_at, 9223372036854775807));
END $$;

-- Whoever writes a time where nothing was, because clocks of machines differ or for any other reason, and be it a server of
-- before, makes the empty places smaller: of a gap the larger part is left.
CREATE FUNCTION hw_lower_ready_floor() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    known record;
BEGIN
    SELECT ready_at, gap_from, gap_to INTO known FROM hw_ready_floors
    WHERE group_id = NEW.group_id ORDER BY version DESC LIMIT 1;
    IF NEW.ready_at < known.ready_at THEN
        CALL hw_set_ready_floor(NEW.group_id, NEW.ready_at, known.gap_from, known.gap_to);
    ELSIF NEW.ready_at > known.gap_from AND NEW.ready_at < known.gap_to THEN
        IF NEW.ready_at - known.gap_from > known.gap_to - NEW.ready_at OR known.gap_to = 9223372036854775807 THEN
            CALL hw_set_ready_floor(NEW.group_id, known.ready_at, known.gap_from, NEW.ready_at);
        ELSE
            CALL hw_set_ready_floor(NEW.group_id, known.ready_at, NEW.ready_at, known.gap_to);
        END IF;
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER hw_lower_ready_floor BEFORE INSERT OR UPDATE ON hw_cursors
FOR EACH ROW WHEN (NEW.ready_at IS NOT NULL) EXECUTE FUNCTION hw_lower_ready_floor();
