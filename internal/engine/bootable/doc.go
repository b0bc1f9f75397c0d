// Package bootable lets an engine boot the images of a store: it says in the words of package
// sandbox what package image keeps on disk, errors included. It owns nothing; `forkd serve`
// puts the two together. The trap: an image that was removed and built again has another
// digest, so that what is found here is good for one snapshot only.
package bootable
