// Package pagedigest is the oracle of captures: a hash of every 4 KiB page of a
// guest's memory and of every block of its disks, as they were at one instant. A
// VMM that is asked for it writes them during a pause (vmm.CaptureConfig.Digest);
// whoever assembles the snapshot hashes what came of it and compares. It owns the
// hash, the file's form and the comparison. Tests and soaks use it; in production
// nobody asks for it. The trap: the hash finds accidents, it withstands no attacker.
//
// The file has no header: a uint64, little-endian, per page in the linear order of
// the whole memory, then for each disk with an overlay file, in order, one per block.
// A disk's last block, if it is cut short, counts as if zeros followed.
package pagedigest
