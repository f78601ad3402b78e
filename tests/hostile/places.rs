//! Rows 4 and 5: commands and servers that never end hold no places that others need.
