package main

import "github.com/epochmq/epochmq/internal/fastjson"

// unmarshalBody reads a body in RocketMQ's JSON.
func unmarshalBody(b []byte, v any) error { return fastjson.Unmarshal(b, v) }
