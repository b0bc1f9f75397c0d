// Package archive reads the untrusted tar files clients upload for COPY. It checks them, and writes
// new archives for the guest to unpack, with the names, owners and modes the step requires. It
// opens no files and knows no guest. It copies no part of a header without a check. The trap: sizes
// in headers are claims until the content is read, so the limits apply to counted bytes.
package archive
