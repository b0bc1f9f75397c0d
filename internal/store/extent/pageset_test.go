package extent

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// pagesOf returns the pages of a set's runs, which must ascend and must not be adjacent.
func pagesOf(t testing.TB, s PageSet, pages int) []bool {
	t.Helper()
	out := make([]bool, pages)
	end := int64(-1)
	for r := range s.Runs() {
		if r.Offset <= end || r.Length <= 0 || (r.Offset|r.Length)%PageSize != 0 || r.End() > int64(pages)*PageSize {
			t.Fatalf("a run of %d bytes at %d behind %d", r.Length, r.Offset, end)
		}
		end = r.End()
		for p := r.Offset / PageSize; p < end/PageSize; p++ {
			out[p] = true
		}
	}
	return out
}

func TestPageSetAgainstAList(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		pages := 1 + random.IntN(300)
		s, want := NewPageSet(int64(pages)*PageSize), make([]bool, pages)
		for range random.IntN(40) {
			from := random.IntN(pages)
			n, in := random.IntN(pages-from+1), random.IntN(3) > 0
			for p := from; p < from+n; p++ {
				want[p] = in
			}
			change := s.Remove
			if in {
				change = s.Add
			}
			change(int64(from)*PageSize, int64(n)*PageSize)
		}
		n := int64(0)
		for p, in := range pagesOf(t, s, pages) {
			if in != want[p] {
				t.Fatalf("page %d of %d is in it: %v", p, pages, in)
			}
			if in {
				n += PageSize
			}
		}
		if s.Bytes() != n || s.Empty() != (n == 0) {
			t.Fatalf("it has %d bytes, empty %v, want %d", s.Bytes(), s.Empty(), n)
		}
		from := random.IntN(pages)
		run := Run{Offset: int64(from) * PageSize, Length: int64(random.IntN(pages-from+1)) * PageSize}
		for p := range want {
			want[p] = want[p] && p >= from && int64(p) < run.End()/PageSize
		}
		part := NewPageSet(int64(pages) * PageSize)
		for r := range s.Within(run) {
			part.Add(r.Offset, r.Length)
		}
		if got := pagesOf(t, part, pages); !slices.Equal(got, want) {
			t.Fatalf("within %v: %v, want %v", run, got, want)
		}
		back, err := DecodePageSet(bytes.NewReader(s.Encode()), int64(pages)*PageSize)
		if err != nil || !bytes.Equal(back.Encode(), s.Encode()) {
			t.Fatalf("read %v, %v", back, err)
		}
	}
}

func TestDecodePageSetRefusesAnotherMemory(t *testing.T) {
	for name, c := range map[string]struct {
		file   []byte
		memory int64
	}{
		"cut short":       {make([]byte, 7), PageSize},
		"too long":        {make([]byte, 16), PageSize},
		"a page too many": {[]byte{2, 0, 0, 0, 0, 0, 0, 0}, PageSize},
	} {
		if s, err := DecodePageSet(bytes.NewReader(c.file), c.memory); err == nil {
			t.Errorf("%s: taken as %v", name, s)
		}
	}
}

func FuzzDecodePageSet(f *testing.F) {
	f.Add(make([]byte, 16), uint16(100))
	f.Add([]byte{0xff, 0, 0, 0, 0, 0, 0, 0}, uint16(8))
	f.Fuzz(func(t *testing.T, file []byte, pages uint16) {
		s, err := DecodePageSet(bytes.NewReader(file), int64(pages)*PageSize)
		if err != nil {
			return
		}
		pagesOf(t, s, int(pages))
		if !bytes.Equal(s.Encode(), file) {
			t.Fatal("what was read is written in another way")
		}
	})
}
