// Package tartest writes entries of tar archives that archive/tar does not write, for tests of readers of foreign
// archives. It owns nothing. Only tests may import it.
package tartest

import "fmt"

// block is the unit of a tar archive in bytes.
const block = 512

// Entry returns one entry, header and body. change, which may be nil, alters the header before its checksum is made.
func Entry(kind byte, name string, body []byte, change func(header []byte)) []byte {
	h := make([]byte, block)
	copy(h, name)
	copy(h[100:], "0000644\x000000000\x000000000\x00")
	copy(h[124:], fmt.Sprintf("%011o\x00%011o\x00        ", len(body), 0))
	h[156] = kind
	copy(h[257:], "ustar\x0000")
	if change != nil {
		change(h)
	}
	sum := 0
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	h = append(h, body...)
	return append(h, make([]byte, (block-len(body)%block)%block)...)
}
