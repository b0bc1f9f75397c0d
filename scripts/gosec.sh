#!/bin/sh
# Looks for security faults in the code that is shipped, with gosec. Generated code, tests and the
# packages below test/ are left out. A finding that is none has a comment at its line:
# "#nosec G402 -- reason". These rules are left out as a whole:
#
#   G103  unsafe: test/arch keeps it in files named *_unsafe.go
#   G104  errors that are not looked at: closing and removing on a way out, which loses no data
#   G115  conversions of integers: most are of numbers that were checked before. Parsers of foreign
#         bytes have fuzz targets
#   G204  programs with arguments: the daemon starts others by design, never by a shell. G702 finds
#         those whose name or arguments come from outside
#   G304  files by a name that is not a constant: every path below a data directory is one. G703
#         finds those whose name comes from outside
#
# internal/confine/jail/stage is left out, as gosec cannot load a package with assembly.
# packaging/lint/gosec.json allows files and folders that all users may read.
set -eu

cd "$(dirname "$0")/.."
exec "${GO:-go}" run github.com/securego/gosec/v2/cmd/gosec@v2.30.0 -quiet -exclude-generated \
	-conf packaging/lint/gosec.json -exclude G103,G104,G115,G204,G304 -concurrency 2 \
	-exclude-dir internal/confine/jail/stage \
	./api/... ./client/... ./cmd/... ./internal/...
