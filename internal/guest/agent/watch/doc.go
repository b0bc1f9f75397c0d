// Package watch tells clients of changes below a directory: as a stream
// (WatchDir) and polled (CreateWatcher and its kin). It owns the inotify
// instances; a stream's lives as long as its request, a polled one until it is
// removed. The trap: the kernel drops events when nobody reads fast enough, and
// then a client must be told that it has lost some rather than be left with a
// wrong picture.
package watch
