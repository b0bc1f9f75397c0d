// Package pagedigest checks captures with a hash of every 4 KiB page of a guest's memory and of every block of
// its disks, taken at one instant. On request, a VMM writes the hashes during a pause (vmm.CaptureConfig.Digest).
// A test then hashes the resulting snapshot and compares. The package owns the hash, the file format and the
// comparison. Only tests and soaks use it. Beware: the hash detects accidents, but does not withstand an
// attacker.
//
// The file has no header: a little-endian uint64 for each page in the linear order of the whole memory, then for
// each disk with an overlay file, in order, one for each block. A short last block of a disk is padded with
// zeros.
package pagedigest
