package guestdump

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Symbols are the symbols of a guest's kernel, by address.
type Symbols []symbol

type symbol struct {
	at   uint64
	name string
	code bool
}

const (
	maxSymbols = 1 << 20
	maxOffset  = 1 << 20 // maximum distance in bytes from a symbol
)

// ReadSymbols reads /proc/kallsyms, as root sees it, of any sandbox with the same boot. Lines
// without a symbol are ignored.
func ReadSymbols(r io.Reader) (Symbols, error) {
	var out Symbols
	for lines := bufio.NewScanner(r); ; {
		if !lines.Scan() {
			slices.SortFunc(out, func(a, b symbol) int { return cmp.Compare(a.at, b.at) })
			return out, lines.Err()
		}
		words := strings.Fields(lines.Text())
		if len(words) < 3 || len(words[1]) != 1 {
			continue
		}
		at, err := strconv.ParseUint(words[0], 16, 64)
		if err != nil || at < 1<<63 {
			continue
		}
		if len(out) == maxSymbols {
			return nil, fmt.Errorf("more than %d symbols", maxSymbols)
		}
		out = append(out, symbol{at, words[2], strings.ContainsAny(words[1], "tTwW")})
	}
}

// find returns the symbol at an address, or the last one before it.
func (s Symbols) find(at uint64) (symbol, bool) {
	i, exact := slices.BinarySearchFunc(s, at, func(e symbol, at uint64) int { return cmp.Compare(e.at, at) })
	if !exact {
		i--
	}
	if i < 0 || at-s[i].at > maxOffset {
		return symbol{}, false
	}
	return s[i], true
}

// Name formats an address: a symbol and the offset from it, or the number.
func (s Symbols) Name(at uint64) string {
	if e, ok := s.find(at); ok {
		return fmt.Sprintf("%#x %s+%#x", at, e.name, at-e.at)
	}
	return fmt.Sprintf("%#x", at)
}

// code reports whether an address lies in a function.
func (s Symbols) code(at uint64) bool {
	e, ok := s.find(at)
	return ok && e.code
}
