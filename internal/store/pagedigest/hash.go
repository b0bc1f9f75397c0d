package pagedigest

import "github.com/cespare/xxhash/v2"

// PageSize is the unit of memory and disks, in bytes.
const PageSize = 4096

// Zero is the hash of a page of zeros.
const Zero = 0xac869b6f32d8bbdb

// Hash returns the hash of a page. A short page is padded with zeros.
func Hash(page []byte) uint64 {
	if len(page) == PageSize {
		return xxhash.Sum64(page)
	}
	var whole [PageSize]byte
	copy(whole[:], page)
	return xxhash.Sum64(whole[:])
}

// Pages returns the number of pages of n bytes.
func Pages(n int64) int64 { return n/PageSize + (n%PageSize+PageSize-1)/PageSize }
