package wipeonfork

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// region is a range of addresses of a process, [from, to).
type region struct{ from, to uint64 }

// flag is the name of the mark in smaps, as in Linux' Documentation/filesystems/proc.rst.
const flag = "wf"

// maxRegions limits the marked regions of one process. It is the kernel's default limit of all regions
// (vm.max_map_count).
const maxRegions = 65530

var errMany = fmt.Errorf("more than %d marked regions", maxRegions)

// marked returns the regions with the mark in a file smaps, read with the buffer. Lines longer than the buffer, which
// only names of files make, are skipped.
func marked(b *bufio.Reader) ([]region, error) {
	var found []region
	var at region
	for {
		line, err := b.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			if at, err = begin(line, at); err != nil {
				return nil, err
			}
			if err = restOfLine(b); err != nil {
				return nil, err
			}
			continue
		case errors.Is(err, io.EOF) && len(line) == 0:
			return found, nil
		case err != nil && !errors.Is(err, io.EOF):
			return nil, err
		}
		if flags, ok := bytes.CutPrefix(line, []byte("VmFlags:")); ok {
			if has(flags) && at.to > at.from {
				if len(found) == maxRegions {
					return nil, errMany
				}
				found = append(found, at)
			}
			at = region{}
		} else if at, err = begin(line, at); err != nil {
			return nil, err
		}
	}
}

func has(flags []byte) bool {
	for f := range bytes.FieldsSeq(flags) {
		if string(f) == flag {
			return true
		}
	}
	return false
}

// begin returns the region that the line begins, or the present one. Lines of regions begin with a hex digit in lower
// case, all others with an upper-case letter.
func begin(line []byte, now region) (region, error) {
	if len(line) == 0 || line[0] >= 'A' && line[0] <= 'Z' {
		return now, nil
	}
	from, rest, ok := bytes.Cut(line, []byte("-"))
	to, _, ok2 := bytes.Cut(rest, []byte(" "))
	if !ok || !ok2 {
		return region{}, fmt.Errorf("line %.40q has no addresses", line)
	}
	f, err := strconv.ParseUint(string(from), 16, 64)
	t, err2 := strconv.ParseUint(string(to), 16, 64)
	if err != nil || err2 != nil || f >= t {
		return region{}, fmt.Errorf("line %.40q has no addresses", line)
	}
	return region{f, t}, nil
}

func restOfLine(b *bufio.Reader) error {
	for {
		if _, err := b.ReadSlice('\n'); err == nil || errors.Is(err, io.EOF) {
			return nil
		} else if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}
