//! The planner and the launch guard in a simulated world.

#[cfg(test)]
mod checks;
#[cfg(test)]
mod draining;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod forming;
#[cfg(test)]
mod healing;
#[cfg(test)]
mod rolling;
#[cfg(test)]
mod scaling;
#[cfg(test)]
mod switching;
#[cfg(test)]
mod world;
