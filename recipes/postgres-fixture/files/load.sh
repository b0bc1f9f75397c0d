#!/bin/sh
# Loads the fixture. After the checkpoint clones have no writes of the parent's left to do.
set -e
createdb fixture
for file in /etc/forkd/fixture.d/*.sql; do
	psql --quiet --no-psqlrc --set ON_ERROR_STOP=1 --single-transaction --file "$file"
done
psql --quiet --no-psqlrc --command 'VACUUM ANALYZE' --command CHECKPOINT
