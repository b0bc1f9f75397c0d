package kernelpkg

import (
	"bufio"
	"bytes"
	"testing"
)

func FuzzDeb(f *testing.F) {
	f.Add(testDeb(f))
	f.Add(testAr(member{"debian-binary", []byte("2.0\n")}, member{"data.tar", testTar(f, testFiles(f))}))
	f.Add([]byte("!<arch>\n"))
	f.Add(sparseDeb(1 << 20))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := readDeb(t.Context(), bufio.NewReader(bytes.NewReader(b)))
		if err != nil {
			return
		}
		if p.Release == "" && len(p.Image()) == 0 && len(p.modules) == 0 {
			t.Fatal("accepted a package with nothing in it")
		}
		for name := range p.modules {
			_, _ = p.Modules(name)
		}
	})
}

func FuzzModinfo(f *testing.F) {
	f.Add(testModule(f, "depends=a,b", "softdep=pre: c post: d", "name=x"))
	f.Add(testModule(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		info, err := parseModinfo(b)
		if err == nil && len(info.depends) > len(b) {
			t.Fatalf("%d dependencies in %d bytes", len(info.depends), len(b))
		}
	})
}
