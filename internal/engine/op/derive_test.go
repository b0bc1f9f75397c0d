package op

import "testing"

func TestTheEndOfAnOutput(t *testing.T) {
	var said tail
	for range 3000 {
		said.add([]byte("line\n"))
	}
	said.add([]byte("\x1b[31mlast"))
	if got := said.text(); len(got) > 200 || got[len(got)-8:] != "[31mlast" {
		t.Errorf("%q", got)
	}
}
