package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Zero is the Prev of the first line.
var Zero = strings.Repeat("0", 2*sha256.Size)

// Head identifies the last line of a log and thereby all lines before it.
type Head struct {
	Chain string `json:"chain,omitempty"` // empty for the first chain
	Seq   uint64 `json:"seq"`
	Hash  string `json:"hash"` // SHA-256 of the line without its newline, in hex
}

// String returns the format read by ParseHead.
func (h Head) String() string {
	if h.Chain != "" {
		return fmt.Sprintf("%s:%d:%s", h.Chain, h.Seq, h.Hash)
	}
	return fmt.Sprintf("%d:%s", h.Seq, h.Hash)
}

// ParseHead reads [CHAIN:]SEQ:HASH.
func ParseHead(s string) (Head, error) {
	chain, rest, found := strings.Cut(s, ":")
	if !found || !chainName.MatchString(chain) {
		chain, rest = "", s
	}
	seq, hash, _ := strings.Cut(rest, ":")
	n, err := strconv.ParseUint(seq, 10, 64)
	if err != nil || n == 0 || !isHash(hash) {
		return Head{}, fmt.Errorf("head %q: want SEQ:HASH or CHAIN:SEQ:HASH, as a verification prints it", s)
	}
	return Head{chain, n, strings.ToLower(hash)}, nil
}

func hashOf(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}

// next returns the entry as the line after h, without its newline, and the new head.
func (h Head) next(e Entry) (line []byte, _ Head, err error) {
	e.Seq, e.Prev = h.Seq+1, h.Hash
	if line, err = json.Marshal(e); err != nil {
		return nil, h, err
	}
	if len(line) >= MaxLine {
		return nil, h, fmt.Errorf("entry has %d bytes, want less than %d", len(line), MaxLine)
	}
	return line, Head{Seq: e.Seq, Hash: hashOf(line)}, nil
}
