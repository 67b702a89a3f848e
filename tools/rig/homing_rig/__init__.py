"""Tools that try Homing: `bench` measures it, `chaos` breaks it and judges what was seen. No part of a node."""
