package metrics

import (
	"fmt"
	"testing"
)

func TestTenantsBeyondTheLimitShareALabel(t *testing.T) {
	var labels tenantLabels
	for i := range maxTenantLabels {
		name := fmt.Sprint("t", i)
		if got := labels.of(name); got != name {
			t.Fatalf("tenant %s has the label %q", name, got)
		}
	}
	if got := labels.of("late"); got != othersLabel {
		t.Errorf("a tenant over the limit has the label %q", got)
	}
	if got := labels.of("t0"); got != "t0" {
		t.Errorf("the first tenant lost its label: %q", got)
	}
	if got := labels.of(""); got != operatorLabel {
		t.Errorf("the operator has the label %q", got)
	}
}
