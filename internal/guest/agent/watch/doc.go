// Package watch reports changes below a directory to clients: as a stream (WatchDir) or polled
// (CreateWatcher and related calls). It owns the inotify instances. A stream's instance lives as
// long as its request, a polled one until it is removed. The kernel drops events if they are not
// read fast enough. A client must then get an error about lost events, instead of a wrong picture.
package watch
