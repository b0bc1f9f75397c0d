// Package bootable lets an engine boot the images of a store. It converts images and errors of
// package image to the types of package sandbox. It has no state; `forkd serve` connects the two.
// An image that was removed and rebuilt has another digest, so a result is valid for one snapshot
// only.
package bootable
