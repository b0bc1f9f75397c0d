package audit

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// For any file content, the pieces add up to the whole file, and every valid line can be decoded separately.
func FuzzLines(f *testing.F) {
	b, err := os.ReadFile(filepath.Join("testdata", "audit.v1.log"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:len(b)-1])
	f.Add(b[100:])
	f.Add([]byte(strings.Repeat("x", 2*MaxLine) + "\n" + string(b)))
	f.Add([]byte("\n\n{}\n{\"seq\":1}\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		var all []byte
		l := left{}
		for s := newScanner(bytes.NewReader(file)); ; {
			p, err := s.next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, p.raw...)
			if p.whole {
				if e, err := Decode(p.line); err != nil || e.Seq != p.entry.Seq || bytes.ContainsRune(p.line, '\n') {
					t.Errorf("%q: %v", p.line, err)
				}
			}
			l.take(p, Head{Seq: 1, Hash: Zero})
		}
		if !bytes.Equal(all, file) || l.bytes != int64(len(file)) {
			t.Errorf("%d bytes became %d", len(file), len(all))
		}
	})
}
