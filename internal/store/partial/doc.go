// Package partial keeps files of snapshots that have not arrived whole. A file is a folder with its table of frames,
// a sparse data file and a durable bitmap of the frames in it. Package partial fetches absent frames through a Source,
// verifies each one with its digest, and continues after a crash. It opens no connection and mounts nothing: package
// images/fetcher does. The trap: a read of an absent frame blocks until the frame has come or the limit has passed.
package partial
