// Package images has the routes of the daemon's image store, and Store, the interface of that store. It does not
// build images.
package images
