//! The connecting half of corq.
