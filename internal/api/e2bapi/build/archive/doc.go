// Package archive reads the tar files that clients upload for COPY, which are foreign bytes: it
// checks them, and writes them anew as a guest is to unpack them, with the names, owners and
// modes that the step asks for. It opens no files and knows no guest. Nothing of a header is
// passed on unlooked at. The trap: sizes are what headers say until all is read; the limits are
// of bytes that were counted.
package archive
