package apierror

import (
	"slices"
	"testing"

	"github.com/forkd/forkd/api"
)

func TestSentinelsHaveCodesOfTheTable(t *testing.T) {
	for _, row := range sentinels() {
		known := slices.ContainsFunc(api.Codes(), func(r api.CodeRow) bool { return r.Code == row.code })
		if !known || row.code.Status() < 400 {
			t.Errorf("sentinel's code %s is not in the table", row.code)
		}
	}
}
