// Package imagebuild builds snapshots from Dockerfiles. BuildKit's parser reads the file. Each step
// runs in a sandbox, and the sandbox's snapshot after RUN, COPY and ADD is a layer on the one before.
// A layer's tag is made from a key of all its inputs, so a later build finds the layers that did not
// change, in any daemon that has them.
//
// The package is a client of the daemon. It runs with the rights of the user: it reads the build
// context on this host, and never follows a link out of it. The guests are not trusted: they choose
// only the output of their programs, and the files that a later stage copies.
package imagebuild
