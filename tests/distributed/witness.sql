-- Notes every lease that is given, so that a loss can be matched with what was done to the worker that had it.
-- Nothing of the engine reads this.
CREATE SCHEMA witness;
CREATE TABLE witness.lease (
    execution_id BIGINT, command_id TEXT, epoch BIGINT, worker_id TEXT, at DOUBLE PRECISION
);
CREATE INDEX lease_of ON witness.lease (execution_id);
CREATE FUNCTION witness.note() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO witness.lease VALUES (
        NEW.execution_id, NEW.command_id, NEW.epoch, NEW.worker_id, extract(EPOCH FROM clock_timestamp())
    );
    RETURN NULL;
END $$;
CREATE TRIGGER leased_at_once AFTER INSERT ON noetl.command
    FOR EACH ROW WHEN (NEW.worker_id IS NOT NULL) EXECUTE FUNCTION witness.note();
CREATE TRIGGER leased AFTER UPDATE ON noetl.command
    FOR EACH ROW WHEN (NEW.worker_id IS NOT NULL AND NEW.epoch <> OLD.epoch) EXECUTE FUNCTION witness.note();

-- While this is a trigger on events, none can be written, as on a disk that is full.
CREATE FUNCTION witness.refuse() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'could not extend file "base/1/1": No space left on device' USING ERRCODE = '53100';
END $$;
