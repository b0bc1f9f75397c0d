package agentclient

import "testing"

// keep is called before output is kept, and only the beginning is kept.
func TestOutputIsKeptAsFarAsThereIsRoom(t *testing.T) {
	room, asked := 10, 0
	c := collector{max: 100, ask: func(n int) int {
		asked++
		n = min(n, room)
		room -= n
		return n
	}}
	for _, chunk := range []string{"12345678", "abcdefgh"} {
		c.add(&c.res.Stdout, &c.res.DroppedStdout, false, []byte(chunk))
	}
	room = 100 // later room does not cause a gap
	c.add(&c.res.Stdout, &c.res.DroppedStdout, false, []byte("later"))
	c.add(&c.res.Stderr, &c.res.DroppedStderr, true, []byte("other"))
	if got := string(c.res.Stdout); got != "12345678ab" || c.res.DroppedStdout != 11 || string(c.res.Stderr) != "other" {
		t.Errorf("kept %q and %q, dropped %d", got, c.res.Stderr, c.res.DroppedStdout)
	}
	if asked != 3 {
		t.Errorf("asked %d times, want 3: what comes after a cut is not asked for", asked)
	}
}
