#!/bin/sh
# Makes the cluster and runs the server in the foreground, as the caller. It trusts local connections: a
# password would be the same in all clones.
set -e
bin=/usr/lib/postgresql/15/bin
data=$HOME/pgdata
[ -e "$data/PG_VERSION" ] || "$bin/initdb" --pgdata "$data" --username user --auth trust --encoding UTF8 --locale C.UTF-8 --no-sync
exec "$bin/postgres" -D "$data" -c unix_socket_directories=/tmp -c listen_addresses=localhost
