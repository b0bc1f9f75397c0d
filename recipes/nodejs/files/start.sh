#!/bin/sh
# Starts the warm Node process.
set -e
cd /usr/local/lib/forkd/node
[ -e reseed.node ] || sudo tcc -shared -nostdlib -o reseed.node reseed.c
# Without --no-memory-reducer V8 collects the whole heap in each idle child.
exec node --no-memory-reducer server.js
