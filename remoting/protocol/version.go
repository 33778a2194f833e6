package protocol

import "strconv"

// Version is what our frames announce: V5_3_3.
const Version int32 = 479

// Versions of peers from which a behaviour starts.
const (
	V3_0_7_SNAPSHOT int32 = 28  // understands the offset reset push
	V3_0_11         int32 = 37  // sends the full registration body
	V3_1_8_SNAPSHOT int32 = 62  // answers running info and direct consumption
	V3_4_9          int32 = 121 // maxReconsumeTimes counts
	V4_9_4          int32 = 401 // reads standard JSON routes
	V5_0_0          int32 = 413 // sends topic mappings in a compressed registration
	V5_3_1          int32 = 475 // above it a client understands GO_AWAY

	higherVersion int32 = 612
)

// A release of the version list: its number, and how many patches follow it, each as X_SNAPSHOT and X.
type releases struct {
	first        int32 // ordinal of the first SNAPSHOT
	major, minor int
	patch, count int
}

var preRelease = [...]string{"V3_0_0_SNAPSHOT", "V3_0_0_ALPHA1", "V3_0_0_BETA1", "V3_0_0_BETA2", "V3_0_0_BETA3",
	"V3_0_0_BETA4", "V3_0_0_BETA5", "V3_0_0_BETA6_SNAPSHOT", "V3_0_0_BETA6", "V3_0_0_BETA7_SNAPSHOT", "V3_0_0_BETA7",
	"V3_0_0_BETA8_SNAPSHOT", "V3_0_0_BETA8", "V3_0_0_BETA9_SNAPSHOT", "V3_0_0_BETA9", "V3_0_0_FINAL"}

var releaseLines = func() []releases {
	lines := []releases{{16, 3, 0, 1, 15}, {46, 3, 1, 0, 10}, {66, 3, 2, 0, 10}}
	for minor := 3; minor <= 9; minor++ { // 3.3 to 3.9 have no patch 0
		lines = append(lines, releases{86 + 18*int32(minor-3), 3, minor, 1, 9})
	}
	for i := range 20 {
		lines = append(lines, releases{212 + 20*int32(i), 4 + i/10, i % 10, 0, 10})
	}
	return lines
}()

// VersionName is RocketMQ's name of a version number: V5_3_3, V4_9_4_SNAPSHOT. Numbers above the list are HIGHER_VERSION,
// negative ones UNKNOWN.
func VersionName(v int32) string {
	switch {
	case v < 0:
		return "UNKNOWN"
	case v >= higherVersion:
		return "HIGHER_VERSION"
	case int(v) < len(preRelease):
		return preRelease[v]
	}
	for _, l := range releaseLines {
		n := int(v - l.first)
		if n >= 2*l.count {
			continue
		}
		name := "V" + strconv.Itoa(l.major) + "_" + strconv.Itoa(l.minor) + "_" + strconv.Itoa(l.patch+n/2)
		if n%2 == 0 {
			name += "_SNAPSHOT"
		}
		return name
	}
	return "HIGHER_VERSION"
}
