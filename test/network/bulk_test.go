package network

import (
	"fmt"
	"testing"
	"time"
)

// bulkSize is the number of bytes in each direction.
const bulkSize = 24 << 20

func TestManyMebibytesArriveIntactBothWays(t *testing.T) {
	w := shared(t, "example.com")
	began := time.Now()
	intact := value[struct{ Up, Down bool }](t, w, w.guest, fmt.Sprintf(`bulk("example.com", %s, %d)`, bulkPort, bulkSize))
	if !intact.Up || !intact.Down {
		t.Errorf("intact: %+v", intact)
	}
	t.Logf("%d MiB each way in %s", bulkSize>>20, time.Since(began).Round(time.Millisecond))
}

func TestDatagramsAndPingsComeBack(t *testing.T) {
	w := shared(t, "example.com", web)
	w.wantText(t, w.guest, `udp("`+web+`", `+echoPort+`, "hello")`, "hello")
	w.wantText(t, w.guest, `udp("example.com", `+echoPort+`, "x" * 1400)[:5]`, "xxxxx")
	w.wantText(t, w.guest, `ping("192.0.0.1")`, "forkd")
}
